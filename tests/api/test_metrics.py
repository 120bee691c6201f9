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


def read_metrics(client: Client) -> dict[tuple[str, str], float]:
    """Returns values of the queue by name and event."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    values: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(response.text):
        assert family.documentation
        for sample in family.samples:
            if sample.labels.get("model") == QUEUE:
                values[sample.name, sample.labels.get("event", "")] = sample.value
    return values


def test_task_series_follow_the_tasks(start_service: StartService) -> None:
    service: Service = start_service()
    worker = service.worker
    with service.client() as client, service.metrics() as scraper:
        tasks = [client.create_task() for _ in range(3)]
        assert read_metrics(scraper)["gen_tasks_queued", ""] == 3
        assert read_metrics(scraper)["gen_task_events_total", "accepted"] == 3
        worker.deliver(tasks[0], image_file(form="JPEG"))
        worker.end(tasks[1], Status.CONTENT_MODERATED)
        metrics = read_metrics(scraper)
    assert (metrics["gen_tasks_queued", ""], metrics["gen_tasks_leased", ""], metrics["gen_tasks_quarantined", ""]) == (
        0,
        1,
        0,
    )
    assert metrics["gen_task_events_total", "ready"] == 1
    assert metrics["gen_task_events_total", "content_moderated"] == 1


def test_reports_of_replicas_are_summed(start_service: StartService) -> None:
    service: Service = start_service()
    report = {"steps": 3.0, "members": 12.0, "steps_s": 0.5, "busy_s": 0.75, "prompts_hits": 2.0, "prompts_misses": 1.0}
    report |= {"batch:4": 2.0, "batch:8": 1.0, "step_ms:100": 2.0, "step_ms:250": 1.0, "step_ms:sum": 450.0}
    report |= {"loads": 1.0, "load_s": 12.5}
    with service.metrics() as scraper:
        assert not any(name.startswith("gen_model") for name, _ in read_metrics(scraper))
        for device in ("cpu", "cuda"):
            service.worker.run(service.worker.tasks.report(QUEUE, report, {"device": device}))
        families = {family.name: family for family in text_string_to_metric_families(scraper.get("/metrics").text)}

    def value(name: str, **labels: str) -> float:
        samples = families[name].samples
        expected_labels = {"model": QUEUE, **labels}.items()
        [match] = [
            each.value
            for each in samples
            if each.name in (name, f"{name}_total") and expected_labels <= each.labels.items()
        ]
        return match

    def histogram_samples(name: str) -> list[tuple[str, float]]:
        samples = families[name].samples
        return [(each.labels.get("le", each.name.rpartition("_")[2]), each.value) for each in samples if each.value]

    assert value("gen_model_steps") == 6
    assert value("gen_model_step_members") == 24
    assert value("gen_model_busy_seconds") == 1.5
    assert value("gen_model_call_seconds", call="steps") == 1.0
    assert value("gen_model_call_seconds", call="encode") == 0
    assert value("gen_model_cache_lookups", cache="prompts", found="yes") == 4
    assert value("gen_model_cache_lookups", cache="adapters", found="no") == 0
    assert value("gen_model_setup_info", device="cuda") == 1
    batches = [("4.0", 4), ("8.0", 6), ("16.0", 6), ("32.0", 6), ("64.0", 6), ("+Inf", 6)]
    assert histogram_samples("gen_model_batch_size") == [*batches, ("count", 6), ("sum", 24)]
    assert {("0.1", 4), ("0.25", 6), ("count", 6), ("sum", 0.9)} <= set(histogram_samples("gen_model_step_seconds"))
    assert histogram_samples("gen_model_load_seconds") == [("count", 2), ("sum", 25)]


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
