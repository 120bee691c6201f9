"""Autoscaling by the length of a model's queue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.local_service import LocalService
from support.polling import wait_for_end

from serve_app.cli.service import Client

MODEL, ENDPOINT, MAX_REPLICAS = "flux3-klein", "gen-3-image-klein", 3


@pytest.mark.slow
def test_burst_on_a_cold_model_starts_all_replicas(tmp_path: Path, repository: Path) -> None:
    scaling = {"min_replicas": 0, "max_replicas": MAX_REPLICAS, "target_wait_s": 10, "upscale_delay_s": 0}
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
            (row,) = [each for each in fleet["models"] if each["model"] == MODEL]
            assert [row[f"{name}_replicas"] for name in ("target", "min", "max")] == [0, 0, MAX_REPLICAS]
            body = {"prompt": "a red star", "width": 64, "height": 64, "steps": 4}
            tasks = [client.submit(ENDPOINT, body | {"seed": number})["id"] for number in range(12)]
            assert [wait_for_end(client, task)["status"] for task in tasks] == ["Ready"] * len(tasks)
            decisions = [
                line for line in read_controller_log(service) if f"name='{MODEL}'" in line and "Upscaling" in line
            ]
            # An earlier decision can come amid the submissions. The last one must not wait for a first replica.
            assert f"to {MAX_REPLICAS} replicas" in decisions[-1]
            assert "current running replicas: 0" in decisions[-1]
            deadline = time.monotonic() + 400  # an average over a minute must fall below one task
            while service.processes(replica):
                assert time.monotonic() < deadline, "replicas are left"
                time.sleep(0.5)
    finally:
        service.close()


def read_controller_log(service: LocalService) -> list[str]:
    (controller,) = service.processes("ServeController")
    log = Path(f"/tmp/ray/session_latest/logs/serve/controller_{controller.pid}.log")
    return log.read_text().splitlines()
