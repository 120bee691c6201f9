"""One task through the real ingress, queue, model and sender, each of which sends its spans to a collector of ours."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.client import HOOK_HOST
from support.destination import Destination, Received, receiving
from support.http_service import Service, running
from support.otlp_collector import Collector, collecting
from support.sender import outcome_of
from support.sender import running as sending

from deployments.contract.events import Event
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelSpec
from deployments.contract.moderation import Thresholds
from deployments.replica import MediaModel
from deployments.telemetry.tracing import tracer_of
from serve_app.config.models import ModelSettings
from serve_app.config.settings import DispatcherSettings, TracingSettings
from serve_app.dispatcher.attempt import Dependencies, Timeouts
from serve_app.dispatcher.queue import ModelQueue
from serve_app.encryption import Sealer
from serve_app.inputs.url_guard import UrlGuard
from serve_app.moderation.gate import Gate
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore
from serve_app.tasks.views import Presenter
from serve_app.webhooks.outbox import Outbox
from serve_app.webhooks.sender import Sender

QUEUE = "flux3-klein"
PROMPT = "a crimson lighthouse that nobody else asks for"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Call:
    """A call of a model in this process."""

    def __init__(self, media: MediaModel, job: GenerationJob) -> None:
        self._events = media.generate(job)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    def cancel(self) -> None:
        """It has ended by itself."""


async def unsuspicious(what: str) -> dict[str, float]:
    return {}


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def worked_off(service: Service, task_id: str) -> list[GenerationJob]:
    """The task made, moderated and told of. What the model was asked for."""
    settings = service.settings
    spec, prefix = settings.tracing.spec(), settings.redis.prefix
    redis = connection.connect(settings.redis_url)
    tasks = TaskStore(redis, prefix, settings.tasks.limits(), at_rest=settings.at_rest())
    outbox = Outbox(redis, prefix, settings.webhooks, settings.at_rest())
    objects = service.worker.objects
    media = MediaModel.__new__(MediaModel)
    await MediaModel.__init__(media, ModelSpec("simulated/1ms", settings.objects_url, tracing=spec))
    dispatching, telling = tracer_of(spec, "dispatcher"), tracer_of(spec, "webhook-sender")
    gate = Gate(unsuspicious, unsuspicious, Thresholds({}), objects)
    jobs: list[GenerationJob] = []

    def call(job: GenerationJob) -> Call:
        jobs.append(job)
        return Call(media, job)

    dependencies = Dependencies(call, Timeouts(60, 60), gate=gate, objects=objects, tracer=dispatching)
    queue = ModelQueue(QUEUE, tasks, dependencies, DispatcherSettings(), ModelSettings())
    presenter = Presenter(objects, service.app.state.services.links, settings.links.image_life_s)
    guard = UrlGuard([HOOK_HOST], here)
    sender = Sender(outbox, tasks, presenter, Sealer(settings.sealing_keys), guard, tracer=telling)
    leasing = asyncio.create_task(queue.lease())
    try:
        async with sending(sender), asyncio.timeout(60):
            while not await outbox.get(task_id):
                await asyncio.sleep(0.01)
            await outcome_of(outbox, [task_id])
        await queue.drain(0)
    finally:
        leasing.cancel()
        media._engine.stop()
        for tracer in (dispatching, telling, media._tracer):
            await asyncio.to_thread(tracer.close)
        await redis.aclose()
    return jobs


def submitted(service: Service, destination: Destination, headers: dict[str, str]) -> tuple[str, str]:
    """The task's id, and the key it was submitted with."""
    with service.client(headers=headers) as client:
        return client.accepted(prompt=PROMPT, webhook_url=f"http://{HOOK_HOST}:{destination.port}/done"), client.secret


@dataclass(frozen=True)
class Traced:
    task: str
    key: str
    """What it was submitted with."""
    job: GenerationJob
    """What the model was asked for."""
    told: Received
    """The webhook."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def trace(tmp_path: Path, redis_url: str, repository: Path) -> Callable[..., Traced]:
    """Sees a task through, submitted with these headers."""

    def trace(headers: dict[str, str], **settings: Any) -> Traced:
        async def through(service: Service) -> Traced:
            async with receiving() as destination:
                task, key = await asyncio.to_thread(submitted, service, destination, headers)
                [job] = await worked_off(service, task)
                [told] = destination.received
            return Traced(task, key, job, told)

        with running(tmp_path / "data", redis_url, repository, **settings) as service:
            return asyncio.run(through(service))

    return trace


def test_a_task_is_one_trace_below_the_clients_own(trace: Callable[..., Traced], collector: Collector) -> None:
    tracing = TracingSettings(endpoint=collector.url)
    seen = trace({"traceparent": f"00-{TRACE}-{PARENT}-01"}, tracing=tracing)

    assert {span.trace for span in collector.spans} == {TRACE}
    by_id = {span.id: span.name for span in collector.spans} | {PARENT: "the client's"}
    tree = {span.name: (span.service, span.kind, by_id[span.parent]) for span in collector.spans}
    assert tree == {
        "submit": ("ingress", "server", "the client's"),
        "queue": ("dispatcher", "internal", "submit"),
        "attempt": ("dispatcher", "consumer", "submit"),
        "moderate request": ("dispatcher", "internal", "attempt"),
        "model": ("dispatcher", "client", "attempt"),
        "wait": ("model", "internal", "model"),
        "encode": ("model", "internal", "model"),
        "steps": ("model", "internal", "model"),
        "finish": ("model", "internal", "model"),
        "store": ("model", "internal", "model"),
        "moderate result": ("dispatcher", "internal", "attempt"),
        "publish": ("dispatcher", "internal", "attempt"),
        "webhook": ("webhook-sender", "client", "submit"),
    }
    assert len(collector.spans) == len(tree), "each once"
    assert not [span.name for span in collector.spans if span.failed]
    assert {span.attributes["gen.task"] for span in collector.spans} == {seen.task}
    for name in ("queue", "attempt", "moderate request", "model", "moderate result", "publish", "webhook"):
        said = collector.one(name).attributes
        assert (said["gen.queue"], said["gen.attempt"]) == (QUEUE, 1)
        assert said["gen.project"] == collector.one("submit").attributes["gen.project"]
    assert collector.one("publish").attributes["gen.status"] == "Ready"
    assert collector.one("webhook").attributes["http.response.status_code"] == 204
    stages = [collector.one(name) for name in ("wait", "encode", "steps", "finish", "store")]
    for before, after in itertools.pairwise(stages):
        assert before.began_ns <= before.ended_ns <= after.began_ns <= after.ended_ns

    assert seen.told.headers["traceparent"] == f"00-{TRACE}-{collector.one('webhook').id}-01"
    sent = b"".join(collector.bodies)
    for private in (PROMPT, "lighthouse", seen.key, seen.key[4:], HOOK_HOST, "sig="):
        assert private.encode() not in sent


def test_what_a_client_does_not_want_written_is_not_but_keeps_its_trace_and_off_nothing_is_passed_on(
    trace: Callable[..., Traced], collector: Collector
) -> None:
    seen = trace({"traceparent": f"00-{TRACE}-{PARENT}-00"}, tracing=TracingSettings(endpoint=collector.url))
    assert collector.spans == []
    version, its_trace, _, flags = seen.told.headers["traceparent"].split("-")
    assert (version, its_trace, flags) == ("00", TRACE, "00")
    seen = trace({"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert (seen.job.traceparent, "traceparent" in seen.told.headers) == ("", False)
