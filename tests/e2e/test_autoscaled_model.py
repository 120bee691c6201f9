"""Replica counts that follow the queue: Ray Serve asks the policy, which reads the task store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.local_service import LocalService
from support.polling import outcome

from serve_app.cli.service import Client

MODEL, ENDPOINT, MOST = "flux3-klein", "gen-3-image-klein", 3


@pytest.mark.slow
def test_a_burst_on_a_cold_model_starts_all_replicas_at_once(tmp_path: Path, repository: Path) -> None:
    scaling = {"min_replicas": 0, "max_replicas": MOST, "target_wait_s": 10, "upscale_delay_s": 0}
    model: dict[str, Any] = {"checkpoint": "simulated/500ms", "max_batch": 1, "max_running": 2}
    model["autoscaling_config"] = scaling | {"target_ongoing_requests": 1, "downscale_delay_s": 10}
    service = LocalService(tmp_path, repository, models={MODEL: model}, tasks={"lease_s": 3, "max_active": 100})
    replica = f"ServeReplica:gen:{MODEL}"
    try:
        service.start()
        with service.client() as client:
            assert service.processes(replica) == []
            with Client(service.base_url, service.operator_key) as operator:
                fleet = operator.admin("GET", "fleet")
            (shown,) = [each for each in fleet["models"] if each["model"] == MODEL]
            bounds = [shown[f"{name}_replicas"] for name in ("target", "min", "max")]
            assert bounds == [0, 0, MOST], "as Serve's controller has them"
            body = {"prompt": "a red star", "width": 64, "height": 64, "steps": 4}
            tasks = [client.submit(ENDPOINT, body | {"seed": number})["id"] for number in range(12)]
            assert [outcome(client, task)["status"] for task in tasks] == ["Ready"] * len(tasks)
            decisions = [line for line in controller_log(service) if f"name='{MODEL}'" in line and "Upscaling" in line]
            assert 1 <= len(decisions) <= 2, "one, or two where it was read amid the submissions"
            assert f"to {MOST} replicas" in decisions[-1]
            give_up = time.monotonic() + 400  # an average over a minute falls to less than a task
            while service.processes(replica):
                assert time.monotonic() < give_up, "not all were let go"
                time.sleep(0.5)
    finally:
        service.close()


def controller_log(service: LocalService) -> list[str]:
    (controller,) = service.processes("ServeController")
    logs = Path("/tmp/ray").glob(f"session_*/logs/serve/controller_{controller.pid}.log")
    return [line for log in logs for line in log.read_text().splitlines()]
