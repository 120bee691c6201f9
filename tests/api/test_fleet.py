"""The fleet report for operators, and the probes of health and readiness."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis
from support.http_client import Client
from support.http_service import Service, StartService, replace_services, running
from support.images import image_file
from support.worker import Worker

from deployments.contract.counts import LOAD_S, LOADS, ReplicaCounts
from deployments.contract.model_fault import ModelFault
from serve_app.accounts.roles import Role
from serve_app.api.readiness import NO_DISPATCHER, NO_OBJECTS, NO_STORE, STORE_FULL, Readiness
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.tasks.reads import StepTiming
from serve_app.tasks.task import Status

QUEUE = "flux3-klein"


@pytest.fixture(scope="module")
def idle_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose queues only tests of this file use."""
    with running(tmp_path_factory.mktemp("idle"), redis_url, repository) as service:
        yield service


def test_fleet_counts_tasks_and_times_of_a_queue(idle_service: Service) -> None:
    worker = idle_service.worker
    with idle_service.client(role=Role.OPERATOR) as operator, idle_service.client() as client:
        before = get_queue(operator)
        ready, failed, _ = (client.create_task() for _ in range(3))
        worker.advance(ready, Status.GENERATING, progress=0.0)
        assert get_queue(operator)["batch"] is None, "no step was taken yet"
        worker.advance(ready, Status.GENERATING, progress=0.5)
        worker.run(worker.tasks.report(QUEUE, {}, {}, StepTiming(3, 0.25)))
        worker.deliver(ready, image_file(form="JPEG"))
        worker.end(failed, Status.ERROR)
        after = get_queue(operator)
    recent, earlier = after["windows"]["24h"], before["windows"]["24h"]
    counted = {name: recent[name] - earlier[name] for name in ("accepted", "ready", "failed")}
    assert counted == {"accepted": 3, "ready": 1, "failed": 1}
    assert recent["per_minute"] > 0 < recent["error_rate"]
    assert recent["run_p50"] <= recent["run_p95"]
    assert after["queued"] + after["running"] > 0
    assert after["predicted_wait_s"] >= 0
    assert (after["batch"], after["step_s"]) == (3, 0.25)
    assert (after["replicas"], recent["busy"], after["what_if"]) == (None, None, []), "no Ray is here"


INCIDENT: Final = {"accepted": 60, "Ready": 10, "Error": 40, "cancelled": 5, "Content Moderated": 2, "wait:116": 50}
"""Waits of a minute: `1.1 ** 116` ms."""


def test_fleet_shows_an_incident_in_its_windows_only(start_service: StartService) -> None:
    async def replicas() -> dict[str, ReplicaCounts]:
        return {name: ReplicaCounts({"RUNNING": 2}, target=3, bounds=(1, 4), fault=ModelFault("gone", ""))}

    service, name = start_service(), "flux1-dev"
    replace_services(service.app, replicas=replicas)
    store = service.worker.tasks

    async def write() -> None:
        minute = int(await store.reads.now() // 60)
        for ago, counts in ((10, INCIDENT | {"device_us": 104_000_000}), (1, {"Ready": 3, "wait:73": 3})):
            await store.redis.hset(f"{store.prefix}recent:{name}:m:{minute - ago}", mapping=counts)  # type: ignore[misc]
        await store.report(name, {LOADS: 2, LOAD_S: 30}, {})

    with service.client(role=Role.OPERATOR) as operator:
        service.worker.run(write())
        model = get_queue(operator, name)
    recent, hour = model["windows"]["5m"], model["windows"]["1h"]
    assert model["fault"] == "gone"
    assert (recent["ready"], recent["failed"], recent["error_rate"], recent["busy"]) == (3, 0, 0, 0)
    assert recent["wait_p95"] < 2
    counted = {key: hour[key] for key in ("accepted", "ready", "failed", "cancelled", "moderated")}
    assert counted == {"accepted": 60, "ready": 13, "failed": 40, "cancelled": 5, "moderated": 2}
    assert hour["error_rate"] == pytest.approx(40 / 53)
    assert hour["wait_p95"] == pytest.approx(60, rel=0.1)
    assert hour["busy"] == pytest.approx(104 / (2 * 3600), rel=0.05)
    worst = max(model["history"], key=lambda minute: minute["wait_p95"] or 0)
    assert (len(model["history"]), worst["ready"]) == (60, 10)
    assert model["cold_start_s"] == 15
    shown = [model[f"{name}replicas"] for name in ("", "target_", "min_", "max_")]
    assert shown == [{"RUNNING": 2}, 3, 1, 4]
    assert [each["replicas"] for each in model["what_if"]] == [1, 2, 3]


def test_fleet_lists_the_last_errors_without_cancellations(idle_service: Service) -> None:
    with idle_service.client(role=Role.OPERATOR) as operator, idle_service.client() as client:
        failed = [client.create_task() for _ in range(11)]
        for number, task_id in enumerate(failed):
            idle_service.worker.end(task_id, Status.ERROR, details={"error": f"no reason {number}"})
        cancelled = client.create_task()
        client.delete(f"/v1/tasks/{cancelled}").raise_for_status()
        failures = get_queue(operator)["failures"]
    assert [each["task"] for each in failures] == failed[:0:-1]
    assert failures[0]["error"] == "no reason 10"
    assert failures[0]["endpoint"] == "gen-3-image-klein"


def get_queue(operator: Client, name: str = QUEUE) -> dict[str, Any]:
    fleet = operator.get("/v1/admin/fleet").raise_for_status().json()
    assert fleet["store_bytes"] > 0
    [match] = [queue for queue in fleet["models"] if queue["model"] == name]
    return match


def test_healthy_service_is_alive_and_ready(client: Client, worker: Worker) -> None:
    alive, ready = client.get("/healthz"), client.get("/readyz")
    assert (alive.status_code, alive.json()) == (200, {"status": "ok", "version": version("gen-serve")})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    assert worker.run(worker.objects.keys("health")) == [], "the test object is deleted"


def test_readiness_names_what_is_missing(start_service: StartService, doomed_redis: EmbeddedRedis) -> None:
    service = start_service(redis_url=doomed_redis.url)
    service.worker.present(False)
    with service.client() as client:
        assert get_missing(client) == [NO_DISPATCHER]
        with Redis.from_url(doomed_redis.url) as redis:
            redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] / 0.92))
        objects = service.settings.data_dir / "objects"
        shutil.rmtree(objects)
        objects.touch()  # a file where the folder was
        forget_readiness(service)
        assert get_missing(client) == [STORE_FULL, NO_DISPATCHER, NO_OBJECTS]
        doomed_redis.stop()
        forget_readiness(service)
        assert get_missing(client) == [NO_STORE, NO_OBJECTS]


def get_missing(client: Client) -> list[str]:
    """Returns the missing parts. The response must have no addresses."""
    response = client.get("/readyz")
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    body = response.json()
    assert body["detail"] == f"Not ready: {'; '.join(body['missing'])}"
    assert body.keys() == {"detail", "code", "missing"}
    return body["missing"]


def forget_readiness(service: Service) -> None:
    readiness: Readiness = service.app.state.services.readiness
    readiness.clear()
