"""Series that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from support.http_client import HOOK_HOST, Client, refusal
from support.http_service import Service, StartService, running
from support.images import image_file
from support.payloads import RESULT
from support.promtool import promtool
from support.worker import IMAGE_ENDPOINT, QUEUE

from deployments.contract.counts import ReplicaCounts
from serve_app.config.settings import MetricsSettings
from serve_app.metrics.series import ALL, SeriesType
from serve_app.storage.tally import CounterBuffer, CounterName
from serve_app.tasks.limits import TaskSettings
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import AttemptRecord, DeliveryOutcome, Outbox

Run: TypeAlias = Callable[..., AbstractContextManager[Service]]


@pytest.fixture
def run(redis_url: str, repository: Path, tmp_path: Path) -> Run:
    """Runs a service with settings. Once it stops, all its counts are stored."""
    return partial(running, tmp_path / "data", redis_url, repository)


def read_samples(client: Client) -> dict[tuple[str, ...], float]:
    """Returns the queue's samples by name and other labels."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    samples = [each for family in text_string_to_metric_families(response.text) for each in family.samples]
    return {
        (each.name, *(f"{name}={value}" for name, value in sorted(each.labels.items()) if name != "model")): each.value
        for each in samples
        if each.labels.get("model") == QUEUE
    }


def test_task_series_follow_the_tasks(start_service: StartService) -> None:
    service: Service = start_service()
    with service.client() as client, service.metrics() as scraper:
        tasks = [client.create_task() for _ in range(3)]
        before = read_samples(scraper)
        service.worker.deliver(tasks[0], image_file(form="JPEG"))
        service.worker.end(tasks[1], Status.CONTENT_MODERATED)
        after = read_samples(scraper)
    assert (before["gen_tasks_queued",], before["gen_task_events_total", "event=accepted"]) == (3, 3)
    assert [after[f"gen_tasks_{state}",] for state in ("queued", "leased", "quarantined")] == [0, 1, 0]
    assert [after["gen_task_events_total", f"event={event}"] for event in ("ready", "content_moderated")] == [1, 1]


def test_reports_of_replicas_are_summed(start_service: StartService) -> None:
    service: Service = start_service()
    report = {"steps": 3.0, "members": 12.0, "steps_s": 0.5, "busy_s": 0.75, "prompts_hits": 2.0, "prompts_misses": 1.0}
    report |= {"batch:4": 2.0, "batch:8": 1.0, "step_ms:100": 2.0, "step_ms:250": 1.0, "step_ms:sum": 450.0}
    report |= {"loads": 1.0, "load_s": 12.5}
    with service.metrics() as scraper:
        assert not any(name.startswith("gen_model") for name, *_ in read_samples(scraper))
        for device in ("cpu", "cuda"):
            service.worker.run(service.worker.tasks.report(QUEUE, report, {"device": device}))
        samples = read_samples(scraper)
    expected: dict[tuple[str, ...], float] = {
        ("gen_model_steps_total",): 6,
        ("gen_model_step_members_total",): 24,
        ("gen_model_busy_seconds_total",): 1.5,
        ("gen_model_call_seconds_total", "call=steps"): 1,
        ("gen_model_call_seconds_total", "call=encode"): 0,
        ("gen_model_cache_lookups_total", "cache=prompts", "found=yes"): 4,
        ("gen_model_cache_lookups_total", "cache=adapters", "found=no"): 0,
        ("gen_model_batch_size_bucket", "le=2.0"): 0,
        ("gen_model_batch_size_bucket", "le=4.0"): 4,
        ("gen_model_batch_size_bucket", "le=8.0"): 6,
        ("gen_model_batch_size_bucket", "le=+Inf"): 6,
        ("gen_model_batch_size_count",): 6,
        ("gen_model_batch_size_sum",): 24,
        ("gen_model_step_seconds_bucket", "le=0.1"): 4,
        ("gen_model_step_seconds_bucket", "le=0.25"): 6,
        ("gen_model_step_seconds_sum",): 0.9,
        ("gen_model_load_seconds_count",): 2,
        ("gen_model_load_seconds_sum",): 25,
    }
    assert samples.items() >= expected.items()
    assert any(name == "gen_model_setup_info" and "device=cuda" in labels for name, *labels in samples)


def test_metrics_need_the_token(start_service: StartService) -> None:
    service = start_service(metrics=MetricsSettings(token=SecretStr("let me in")))
    with service.metrics() as scraper:
        for headers in ({}, {"Authorization": "let me in"}, {"Authorization": "Bearer let me"}, {"x-key": "let me in"}):
            response = scraper.get("/metrics", headers=headers)
            assert "metrics.token" in refusal(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        assert scraper.get("/metrics", headers={"Authorization": "Bearer let me in"}).status_code == 200


async def count_background_work(service: Service) -> None:
    """Counts a delivered webhook, a moderated request and the work of a replica."""
    tasks, prefix = service.worker.tasks, service.settings.redis.prefix
    outbox = Outbox(tasks.redis, prefix)
    [claim] = await outbox.claim(1)
    await outbox.record(claim, AttemptRecord(1.0, 204), DeliveryOutcome.DELIVERED)
    tally = CounterBuffer()
    tally.observe(CounterName.MODERATION, "request", 0.2)
    await tally.flush(tasks.redis, prefix)
    await tasks.report(QUEUE, {"steps": 1}, {"device": "cpu"})


async def count_replicas() -> Mapping[str, ReplicaCounts]:
    return {QUEUE: ReplicaCounts({"RUNNING": 2}, target=2)}


def test_every_declared_series_is_exported(run: Run) -> None:
    with run(tasks=TaskSettings(max_active=2)) as service, service.client() as client:
        tasks = client.create_task(webhook_url=f"http://{HOOK_HOST}/hook"), client.create_task()
        assert client.submit().status_code == 429
        for task in tasks:
            service.worker.advance(task, Status.GENERATING)
            service.worker.end(task, Status.READY, result=RESULT, device_s=1.5)
        service.worker.run(count_background_work(service))
    with service.metrics(count_replicas) as scraper:
        text = scraper.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    types = {SeriesType.INFO: "gauge"}
    for series in ALL:
        name = series.name.removesuffix("_total")
        assert families.pop(name).type == types.get(series.type, series.type), name
    assert not families, "undeclared series"
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert {name for series in ALL for name in series.samples} == names
    promtool("check", "metrics", text=text)


def test_rejected_submissions_are_counted_by_reason(run: Run) -> None:
    with run(tasks=TaskSettings(max_active=1)) as service, service.client() as client:
        client.create_task()
        assert [client.submit().status_code, client.submit().status_code] == [429, 429]
        with service.client(organization=service.worker.new_organization(credits=0)) as penniless:
            assert penniless.submit().status_code == 402
        assert client.submit(prompt=3).status_code == 422
    with service.metrics() as scraper:
        families = list(text_string_to_metric_families(scraper.get("/metrics").text))
    counts = {
        (labels["endpoint"], labels["reason"]): value
        for family in families
        for name, labels, value, *_ in family.samples
        if name == "gen_submissions_refused_total"
    }
    assert counts == {(IMAGE_ENDPOINT, "too_many_active"): 2, (IMAGE_ENDPOINT, "insufficient_credits"): 1}
