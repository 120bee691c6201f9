"""Liveness, readiness and figures."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from redis import Redis
from support.client import Client, refusal
from support.http_service import Service, StartService
from support.pictures import picture
from support.worker import LANE, Worker

from serve_app.config.settings import MetricsSettings
from serve_app.http import readiness
from serve_app.local.embedded_redis import EmbeddedRedis
from serve_app.tasks.task import Status


@pytest.fixture
def scraper(service: Service) -> Iterator[Client]:
    with service.figures() as scraper:
        yield scraper


def figures(client: Client) -> dict[tuple[str, str], float]:
    """Value by name and event."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(response.text):
        assert family.documentation
        for sample in family.samples:
            if sample.labels.get("lane") == LANE:
                found[sample.name, sample.labels.get("event", "")] = sample.value
    return found


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
        assert missing(client) == [readiness.NO_DISPATCHER]
        with Redis.from_url(doomed_redis.url) as redis:
            redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] / 0.92))
        objects = service.settings.data_dir / "objects"
        shutil.rmtree(objects)
        objects.touch()  # a file where the folder was
        fresh(service)
        assert missing(client) == [readiness.STORE_FULL, readiness.NO_DISPATCHER, readiness.NO_OBJECTS]
        doomed_redis.stop()
        fresh(service)
        assert missing(client) == [readiness.NO_STORE, readiness.NO_OBJECTS]


def missing(client: Client) -> list[str]:
    """What is missing, whose form is checked on the way: nothing tells where anything is."""
    response = client.get("/readyz")
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    body = response.json()
    assert body["detail"] == f"Not ready: {'; '.join(body['missing'])}"
    assert body.keys() == {"detail", "missing"}
    return body["missing"]


def fresh(service: Service) -> None:
    """No answer from before counts any more."""
    services = service.app.state.services
    known = readiness.Readiness(services.tasks, services.objects)
    service.app.state.services = dataclasses.replace(services, readiness=known)


def test_figures_follow_the_tasks(start_service: StartService) -> None:
    service: Service = start_service()
    worker = service.worker
    with service.client() as client, service.figures() as scraper:
        tasks = [client.accepted() for _ in range(3)]
        assert figures(scraper)["gen_tasks_queued", ""] == 3
        assert figures(scraper)["gen_task_events_total", "accepted"] == 3
        worker.deliver(tasks[0], picture(form="JPEG"))
        worker.end(tasks[1], Status.CONTENT_MODERATED)
        seen = figures(scraper)
    assert (seen["gen_tasks_queued", ""], seen["gen_tasks_leased", ""], seen["gen_tasks_suspects", ""]) == (0, 1, 0)
    assert seen["gen_task_events_total", "ready"] == 1
    assert seen["gen_task_events_total", "content_moderated"] == 1


def test_figures_of_their_work_are_what_replicas_told_together(start_service: StartService) -> None:
    service: Service = start_service()
    told = {"steps": 3.0, "members": 12.0, "steps_s": 0.5, "busy_s": 0.75, "prompts_hits": 2.0, "prompts_misses": 1.0}
    with service.figures() as scraper:
        assert not any(name.startswith("gen_model") for name, _ in figures(scraper)), "of lanes that told nothing"
        for device in ("cpu", "cuda"):
            service.worker.run(service.worker.tasks.report(LANE, told, {"device": device}))
        families = {family.name: family for family in text_string_to_metric_families(scraper.get("/metrics").text)}

    def value(name: str, **labels: str) -> float:
        samples = families[name].samples
        [found] = [each.value for each in samples if {"lane": LANE, **labels}.items() <= each.labels.items()]
        return found

    assert value("gen_model_steps") == 6
    assert value("gen_model_step_members") == 24
    assert value("gen_model_busy_seconds") == 1.5
    assert value("gen_model_call_seconds", call="steps") == 1.0
    assert value("gen_model_call_seconds", call="encode") == 0
    assert value("gen_model_cache_lookups", cache="prompts", found="yes") == 4
    assert value("gen_model_cache_lookups", cache="adapters", found="no") == 0
    assert value("gen_model_setup_info", device="cuda") == 1


def test_figures_are_not_for_clients(client: Client, scraper: Client) -> None:
    assert refusal(client.get("/metrics"), 404) == "Not Found"
    assert refusal(scraper.get("/v1/tasks"), 404) == "Not Found"


def test_figures_are_for_those_who_show_the_token(start_service: StartService) -> None:
    service = start_service(metrics=MetricsSettings(token=SecretStr("let me in")))
    with service.figures() as scraper:
        for shown in ({}, {"Authorization": "let me in"}, {"Authorization": "Bearer let me"}, {"x-key": "let me in"}):
            response = scraper.get("/metrics", headers=shown)
            assert "metrics.token" in refusal(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        assert scraper.get("/metrics", headers={"Authorization": "Bearer let me in"}).status_code == 200


def test_figures_are_not_for_a_page_whose_name_was_made_to_point_here(
    scraper: Client, start_service: StartService
) -> None:
    for host, status in (("evil.test:9464", 421), ("127.0.0.1:9464", 200), ("localhost", 200)):
        assert scraper.get("/metrics", headers={"Host": host}).status_code == status
    with start_service(metrics=MetricsSettings(token=SecretStr("let me in"))).figures() as guarded:
        headers = {"Host": "10.1.2.3:9464", "Authorization": "Bearer let me in"}
        assert guarded.get("/metrics", headers=headers).status_code == 200


def test_figures_are_in_the_format_that_prometheus_reads(scraper: Client) -> None:
    families = {family.name: family for family in text_string_to_metric_families(scraper.get("/metrics").text)}
    assert {name: family.type for name, family in families.items()} == {
        "gen_store_memory_bytes": "gauge",
        "gen_store_memory_limit_bytes": "gauge",
        "gen_tasks_queued": "gauge",
        "gen_tasks_suspects": "gauge",
        "gen_tasks_leased": "gauge",
        "gen_task_events": "counter",
        "gen_task_wait_seconds": "histogram",
        "gen_task_work_seconds": "histogram",
        "gen_model_busy_seconds": "counter",
        "gen_model_call_seconds": "counter",
        "gen_model_steps": "counter",
        "gen_model_step_members": "counter",
        "gen_model_cache_lookups": "counter",
        "gen_model_cache_evictions": "counter",
        "gen_model_setup_info": "gauge",
    }
    bounds = [sample.labels["le"] for sample in families["gen_task_wait_seconds"].samples if "le" in sample.labels]
    assert bounds[-1] == "+Inf"
