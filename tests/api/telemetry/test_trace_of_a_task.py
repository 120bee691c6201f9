"""The spans of one task: ingress, queue, model and sender send them to a collector."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.dispatchers import CallModel
from support.http_client import HOOK_HOST
from support.http_service import Service, running
from support.otlp_collector import Collector, collecting
from support.webhook_receiver import Received, receiving
from support.webhook_senders import running as sending
from support.webhook_senders import wait_for_states

from deployments.contract.events import Event
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelSpec
from deployments.contract.moderation import Thresholds
from deployments.replica import MediaModel
from deployments.telemetry import create_tracer
from serve_app.config.settings import TracingSettings
from serve_app.dispatcher.attempt import AttemptContext, Timeouts
from serve_app.dispatcher.concurrency import ConcurrencyLimiter
from serve_app.dispatcher.queue import QueueConsumer
from serve_app.encryption import Sealer
from serve_app.inputs.ssrf import UrlGuard
from serve_app.moderation.gate import Gate
from serve_app.storage import connection
from serve_app.tasks.serializer import ResultSerializer
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox
from serve_app.webhooks.sender import Sender

QUEUE = "flux3-klein"
PROMPT = "a crimson lighthouse"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Call:
    """A call of a model in this process."""

    def __init__(self, media: MediaModel, job: GenerationJob) -> None:
        self._events = media.generate(job)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    def cancel(self) -> None:
        """No-op: the call has ended."""


class Harmless:
    """Classifiers that find nothing."""

    async def moderate_text(self, text: str) -> dict[str, float]:
        return {}

    moderate_object = moderate_text


async def resolve(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def work_off(service: Service, task_id: str) -> list[GenerationJob]:
    """Makes, moderates and delivers the task. Returns the jobs that the model got."""
    settings = service.settings
    spec, prefix = settings.tracing.spec(), settings.redis.prefix
    redis = connection.connect(settings.redis_url)
    tasks = TaskStore(redis, prefix, settings.tasks.limits(), at_rest=settings.at_rest())
    outbox = Outbox(redis, prefix, settings.webhooks, settings.at_rest())
    objects = service.worker.objects
    media = MediaModel.__new__(MediaModel)
    model = ModelSpec(checkpoint="simulated/1ms", objects_url=settings.objects_url, tracing=spec)
    await MediaModel.__init__(media, model)
    tracers = [create_tracer(spec, name) for name in ("dispatcher", "webhook-sender")]
    jobs: list[GenerationJob] = []

    def call(job: GenerationJob) -> Call:
        jobs.append(job)
        return Call(media, job)

    limiter, gate = ConcurrencyLimiter(4, 256), Gate(Harmless(), Thresholds({}))
    context = AttemptContext(
        QUEUE, tasks, objects, CallModel(call), limiter, Timeouts(60, 60), gate=gate, tracer=tracers[0]
    )
    queue = QueueConsumer(context, max_leased=100)
    serializer = ResultSerializer(objects, service.app.state.services.links, settings.links.image_life_s)
    guard = UrlGuard([HOOK_HOST], resolve)
    sender = Sender(outbox, tasks, serializer, Sealer(settings.sealing_keys), guard, tracer=tracers[1])
    leasing = asyncio.create_task(queue.lease())
    try:
        async with sending(sender), asyncio.timeout(60):
            while not await outbox.get(task_id):
                await asyncio.sleep(0.01)
            await wait_for_states(outbox, [task_id])
        await queue.drain(0)
    finally:
        leasing.cancel()
        media._engine.stop()
        for tracer in (*tracers, media._tracer):
            await asyncio.to_thread(tracer.close)
        await redis.aclose()
    return jobs


@dataclass(frozen=True)
class TracedTask:
    id: str
    key: str
    """Key of the client that submitted the task."""
    job: GenerationJob
    delivery: Received


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def trace(tmp_path: Path, redis_url: str, repository: Path) -> Callable[..., TracedTask]:
    """Submits a task with the given headers and waits for its webhook."""

    def submit(service: Service, headers: dict[str, str], webhook_url: str) -> tuple[str, str]:
        with service.client(headers=headers) as client:
            return client.create_task(prompt=PROMPT, webhook_url=webhook_url), client.secret

    async def run(service: Service, headers: dict[str, str]) -> TracedTask:
        async with receiving() as destination:
            task, key = await asyncio.to_thread(submit, service, headers, f"http://{HOOK_HOST}:{destination.port}/done")
            [job] = await work_off(service, task)
            [delivery] = destination.received
        return TracedTask(task, key, job, delivery)

    def trace(headers: dict[str, str], **settings: Any) -> TracedTask:
        with running(tmp_path / "data", redis_url, repository, **settings) as service:
            return asyncio.run(run(service, headers))

    return trace


def test_task_is_one_trace_below_that_of_the_client(trace: Callable[..., TracedTask], collector: Collector) -> None:
    tracing = TracingSettings(endpoint=collector.url)
    traced = trace({"traceparent": f"00-{TRACE}-{PARENT}-01"}, tracing=tracing)

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
    assert len(collector.spans) == len(tree)
    assert not [span.name for span in collector.spans if span.failed]
    assert {span.attributes["gen.task"] for span in collector.spans} == {traced.id}
    for name in ("queue", "attempt", "moderate request", "model", "moderate result", "publish", "webhook"):
        attributes = collector.one(name).attributes
        assert (attributes["gen.queue"], attributes["gen.attempt"]) == (QUEUE, 1)
        assert attributes["gen.project"] == collector.one("submit").attributes["gen.project"]
    assert collector.one("publish").attributes["gen.status"] == "Ready"
    assert collector.one("webhook").attributes["http.response.status_code"] == 204
    stages = [collector.one(name) for name in ("wait", "encode", "steps", "finish", "store")]
    for before, after in itertools.pairwise(stages):
        assert before.began_ns <= before.ended_ns <= after.began_ns <= after.ended_ns

    assert traced.delivery.headers["traceparent"] == f"00-{TRACE}-{collector.one('webhook').id}-01"
    payload = b"".join(collector.bodies)
    for private in (PROMPT, "lighthouse", traced.key, traced.key[4:], HOOK_HOST, "sig="):
        assert private.encode() not in payload


def test_unsampled_trace_is_passed_on_unless_tracing_is_off(
    trace: Callable[..., TracedTask], collector: Collector
) -> None:
    traced = trace({"traceparent": f"00-{TRACE}-{PARENT}-00"}, tracing=TracingSettings(endpoint=collector.url))
    assert collector.spans == []
    version, its_trace, _, flags = traced.delivery.headers["traceparent"].split("-")
    assert (version, its_trace, flags) == ("00", TRACE, "00")
    traced = trace({"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert (traced.job.traceparent, "traceparent" in traced.delivery.headers) == ("", False)
