"""Liveness and readiness."""

from __future__ import annotations

import dataclasses
import shutil

from redis import Redis
from support.client import Client
from support.http_service import Service, StartService
from support.worker import Worker

from serve_app.api.services import NO_DISPATCHER, NO_OBJECTS, NO_STORE, STORE_FULL, Readiness
from serve_app.launcher.embedded_redis import EmbeddedRedis


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
