"""What a trace tells of attempts that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.job_records import new_job
from support.lanes import LANE, PRICE, Scene
from support.otlp_collector import Collector, collecting
from support.tasks import new_task

from deployments.telemetry.tracing import TracingSpec, tracer_of

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


async def test_an_attempt_that_lost_its_worker_says_so_and_the_next_lies_beside_it(
    scene: Scene, collector: Collector
) -> None:
    scene.tracer = tracer_of(TracingSpec(collector.url), "dispatcher")
    scene.model.finishing.clear()
    lane = scene.dispatcher()
    task = new_task(job=new_job(prompt="a secret star").encode(), price=PRICE, traceparent=PARENT)
    await scene.store.submit(task)
    lane.wake.set()
    await scene.until(lambda: scene.model.running)
    scene.model.die()
    scene.model.finishing.set()
    await scene.ended([task.id])
    await asyncio.to_thread(scene.tracer.close)

    attempts = [span for span in collector.spans if span.name == "attempt"]
    told = [(span.attributes["gen.attempt"], span.failed, "error.type" in span.attributes) for span in attempts]
    assert told == [(1, True, True), (2, False, False)]
    assert {(span.trace, span.parent) for span in attempts} == {("a" * 32, "b" * 16)}
    assert {span.attributes["gen.lane"] for span in attempts} == {LANE}
    assert len([span for span in collector.spans if span.name == "queue"]) == 1, "its wait for the first of them"
    assert collector.one("publish").attributes["gen.attempt"] == 2
    assert b"secret star" not in b"".join(collector.bodies)
