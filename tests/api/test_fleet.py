"""What operators see of the queues."""

from __future__ import annotations

import dataclasses
import shutil
from typing import Any

from redis import Redis
from support.client import Client, refusal
from support.http_service import Service, StartService
from support.pictures import picture
from support.worker import Worker

from serve_app.accounts.roles import Role
from serve_app.api.services import NO_DISPATCHER, NO_OBJECTS, NO_STORE, STORE_FULL, Readiness
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.tasks.task import Status

QUEUE = "flux3-klein"


def test_queues_tell_what_waits_and_what_it_took(start_service: StartService) -> None:
    service = start_service()
    with service.client(role=Role.OPERATOR) as operator, service.client() as client:
        before = queue(operator)
        done, failed, waiting = (client.accepted() for _ in range(3))
        service.worker.advance(done, Status.GENERATING, progress=0.0)
        assert queue(operator)["batch"] is None, "no step was taken yet"
        service.worker.advance(done, Status.GENERATING, progress=0.5, pace=(3, 0.25))
        service.worker.deliver(done, picture(form="JPEG"))
        service.worker.end(failed, Status.ERROR)
        assert waiting
        after = queue(operator)
    assert after["work"]["tasks"] == before["work"]["tasks"] + 1
    assert after["ended"]["Error"] == before["ended"].get("Error", 0) + 1
    assert after["queued"] + after["running"] > 0
    assert after["predicted_wait_s"] >= 0
    assert after["work"]["half"] <= after["work"]["most"]
    assert (after["batch"], after["step_s"]) == (3, 0.25)
    assert after["replicas"] is None, "no Ray is here"


def test_the_last_errors_are_told_but_not_what_was_cancelled(start_service: StartService) -> None:
    service = start_service()
    with service.client(role=Role.OPERATOR) as operator, service.client() as client:
        failed = [client.accepted() for _ in range(11)]
        for number, task_id in enumerate(failed):
            service.worker.end(task_id, Status.ERROR, details={"error": f"no reason {number}"})
        cancelled = client.accepted()
        client.delete(f"/v1/tasks/{cancelled}").raise_for_status()
        told = queue(operator)["failures"]
    assert [each["task"] for each in told] == failed[:0:-1]
    assert told[0]["error"] == "no reason 10"
    assert told[0]["endpoint"] == "gen-3-image-klein"


def queue(operator: Client) -> dict[str, Any]:
    fleet = operator.get("/v1/admin/fleet").raise_for_status().json()
    assert fleet["store_bytes"] > 0
    [found] = [queue for queue in fleet["models"] if queue["model"] == QUEUE]
    return found


def test_it_is_for_operators_alone(administrator: Client) -> None:
    assert "role administrator" in refusal(administrator.get("/v1/admin/fleet"), 403)


def test_alive(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_ready_with_a_store_objects_and_a_dispatcher(client: Client, worker: Worker) -> None:
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})
    assert worker.run(worker.objects.keys("health")) == [], "what was tried is taken back"


def test_what_is_missing_is_said_in_words(start_service: StartService, doomed_redis: EmbeddedRedis) -> None:
    service = start_service(redis_url=doomed_redis.url)
    service.worker.present(False)
    with service.client() as client:
        assert missing(client) == [NO_DISPATCHER]
        with Redis.from_url(doomed_redis.url) as redis:
            redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] / 0.92))
        objects = service.settings.data_dir / "objects"
        shutil.rmtree(objects)
        objects.touch()  # a file where the folder was
        fresh(service)
        assert missing(client) == [STORE_FULL, NO_DISPATCHER, NO_OBJECTS]
        doomed_redis.stop()
        fresh(service)
        assert missing(client) == [NO_STORE, NO_OBJECTS]


def missing(client: Client) -> list[str]:
    """What is missing, whose form is checked on the way: nothing tells where anything is."""
    response = client.get("/readyz")
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    body = response.json()
    assert body["detail"] == f"Not ready: {'; '.join(body['missing'])}"
    assert body.keys() == {"detail", "code", "missing"}
    return body["missing"]


def fresh(service: Service) -> None:
    """No answer from before counts any more."""
    services = service.app.state.services
    known = Readiness(services.tasks, services.objects)
    service.app.state.services = dataclasses.replace(services, readiness=known)
