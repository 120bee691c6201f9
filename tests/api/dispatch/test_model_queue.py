"""Queue consumers over the real store and a simulated model, while replicas and dispatchers die, hang and drain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from support.attempts import AttemptScene
from support.dispatchers import PATIENCE_S, PRICE, Scene, fake_rewriter
from support.otlp_collector import collecting
from support.payloads import new_payload
from support.tasks import QUEUE, make_due, new_task

from deployments.contract.moderation import Thresholds
from deployments.telemetry import create_tracer
from deployments.telemetry.tracing import TracingSpec
from serve_app.dispatcher import attempt, failures, queue
from serve_app.dispatcher.attempt import AttemptOutcome, Timeouts
from serve_app.dispatcher.queue import DeviceTurn
from serve_app.moderation.gate import Gate
from serve_app.tasks.payload import VERSION
from serve_app.tasks.scripts import ReleaseCause, ReleaseOutcome
from serve_app.tasks.task import Status

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


async def at_work(scene: Scene, n: int = 1) -> list[str]:
    """Submits tasks that the model begins with and does not finish. Returns their ids."""
    scene.model.finishing.clear()
    ids = await scene.submit(n)
    await scene.until(lambda: len(scene.model.running) == n)
    return ids


async def test_dispatchers_share_the_work_and_repeat_none(scene: Scene) -> None:
    scene.model.admitting.clear()
    for _ in range(2):
        scene.dispatcher(headroom=4)
    ids = await scene.submit(100)
    # A single dispatcher would have only its headroom waiting.
    await scene.until(lambda: len(scene.model.waiting) == 8)
    assert (await scene.store.reads.counts(QUEUE))["leased"] == 8
    scene.model.admitting.set()
    tasks = await scene.wait_for_end(ids)
    assert {(task.status, task.cost, task.attempt) for task in tasks} == {(Status.READY, PRICE, 1)}
    assert tasks[0].result is not None
    assert tasks[0].result.key == f"results/{tasks[0].id}/1/image.png"
    assert set(scene.model.finished.values()) == {1}


async def test_dead_replica_costs_its_tasks_one_crash_each(scene: Scene) -> None:
    scene.dispatcher()
    ids = await at_work(scene, 10)
    scene.model.die()
    scene.model.finishing.set()
    tasks = await scene.wait_for_end(ids)
    assert {(task.status, task.attempt, task.crashes) for task in tasks} == {(Status.READY, 2, 1)}


async def test_attempt_of_a_dead_replica_is_a_failed_span(scene: Scene) -> None:
    with collecting() as collector:
        scene.tracer = create_tracer(TracingSpec(collector.url), "dispatcher")
        scene.model.finishing.clear()
        dispatcher = scene.dispatcher()
        task = new_task(payload=new_payload(prompt="a secret star"), price=PRICE, traceparent=PARENT)
        await scene.store.submit(task)
        dispatcher.wake.set()
        await scene.until(lambda: scene.model.running)
        scene.model.die()
        scene.model.finishing.set()
        await scene.wait_for_end([task.id])
        await asyncio.to_thread(scene.tracer.close)
    attempts = [span for span in collector.spans if span.name == "attempt"]
    outcomes = [(span.attributes["gen.attempt"], span.failed, "error.type" in span.attributes) for span in attempts]
    assert outcomes == [(1, True, True), (2, False, False)]
    assert {(span.trace, span.parent, span.attributes["gen.queue"]) for span in attempts} == {
        ("a" * 32, "b" * 16, QUEUE)
    }
    assert len([span for span in collector.spans if span.name == "queue"]) == 1, "only before the first attempt"
    assert collector.one("publish").attributes["gen.attempt"] == 2
    assert b"secret star" not in b"".join(collector.bodies)


async def test_another_dispatcher_takes_over_from_a_dead_one(scene: Scene) -> None:
    first = scene.dispatcher()
    ids = await at_work(scene, 8)
    await scene.kill(first)
    scene.model.finishing.set()
    scene.dispatcher()
    await make_due(scene.store, f"leased:{QUEUE}")
    assert await scene.store.reap(QUEUE) == 8
    assert {task.status for task in await scene.wait_for_end(ids)} == {Status.READY}


async def test_poison_task_ends_alone(scene: Scene) -> None:
    scene.dispatcher(headroom=8)
    ids = await scene.submit(30)
    (poison,) = await scene.submit(1, prompt="poison")
    ids += await scene.submit(30)
    (ended,) = await scene.wait_for_end([poison])
    assert (ended.status, ended.details is None) == (Status.ERROR, False)
    assert {task.status for task in await scene.wait_for_end(ids)} == {Status.READY}
    assert scene.model.deaths <= 3


@pytest.mark.parametrize("channel", ["by message", "by heartbeat"])
async def test_cancelling_stops_the_work(scene: Scene, channel: str) -> None:
    dispatcher = scene.dispatcher()
    (task_id,) = await at_work(scene)
    await scene.store.cancel(task_id, "p")
    if channel == "by message":
        dispatcher.stop(task_id)
    await scene.until(lambda: not scene.model.running)
    assert (await scene.task(task_id)).details == {"error": "Cancelled by the client"}
    assert scene.model.finished == {}


async def test_silent_model_counts_as_lost() -> None:
    scene = AttemptScene()
    scene.timeouts = Timeouts(start_s=10 * PATIENCE_S, stall_s=0.05)
    scene.model.before_last.clear()
    async with asyncio.timeout(PATIENCE_S):
        assert await scene.attempt().run() is AttemptOutcome.RELEASED
    assert scene.store.releases == [ReleaseCause.CRASH]


async def test_model_that_does_not_begin_costs_no_crash(scene: Scene) -> None:
    scene.dispatcher(start_s=0.2)
    scene.model.admitting.clear()
    (task_id,) = await scene.submit()

    async def tried_twice() -> bool:
        return (await scene.task(task_id)).attempt >= 2

    await scene.until(tried_twice)
    scene.model.admitting.set()
    (task,) = await scene.wait_for_end([task_id])
    assert (task.status, task.crashes) == (Status.READY, 0)


async def test_job_of_a_later_release_goes_back_untouched(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    dispatcher = scene.dispatcher(headroom=1)
    newer, payload = new_task(price=PRICE), json.dumps({"v": VERSION + 1, "scene": "of another shape"})
    await scene.store.submit(newer)
    await scene.store.redis.hset(f"{scene.store.prefix}task:{newer.id}", "job", payload)  # type: ignore[misc]
    dispatcher.wake.set()

    async def was_released() -> bool:
        return (await scene.store.reads.counts(QUEUE)).get("requeued", 0) > 0

    await scene.until(was_released)
    task = await scene.task(newer.id)
    assert (task.status, task.crashes, task.payload) == (Status.PENDING, 0, payload)


async def test_drain_gives_back_waiting_tasks_and_finishes_running_ones(scene: Scene) -> None:
    dispatcher = scene.dispatcher(headroom=3)
    running = await at_work(scene, 2)
    scene.model.admitting.clear()
    waiting = await scene.submit(5)
    await scene.until(lambda: len(scene.model.waiting) == 3)
    drained = asyncio.create_task(dispatcher.drain(PATIENCE_S))
    await scene.until(lambda: not scene.model.waiting)
    scene.model.finishing.set()
    await drained
    assert {(await scene.task(task_id)).status for task_id in running} == {Status.READY}
    pending = [await scene.task(task_id) for task_id in waiting]
    assert {(task.status, task.crashes) for task in pending} == {(Status.PENDING, 0)}
    assert (await scene.store.reads.counts(QUEUE))["leased"] == 0


@pytest.mark.parametrize("store_is_away", [False, True])
async def test_drain_gives_back_running_tasks_after_its_limit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, store_is_away: bool
) -> None:
    away = iter([store_is_away] * 3)
    release = scene.store.release

    async def out_of_reach(*args: Any, **how: Any) -> ReleaseOutcome:
        if next(away, False):
            raise RedisConnectionError("away")
        return await release(*args, **how)

    monkeypatch.setattr(scene.store, "release", out_of_reach)
    monkeypatch.setattr(attempt, "_RETRY_S", 0)
    dispatcher = scene.dispatcher()
    (task_id,) = await at_work(scene)
    await dispatcher.drain(0.05)
    task = await scene.task(task_id)
    assert (task.status, task.crashes) == (Status.PENDING, 0)


async def test_drain_gives_back_a_task_that_waits_for_moderation(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_RELEASE_TIMEOUT_S", 0.1)
    moderation = asyncio.Event()

    class Hanging:
        async def moderate_text(self, text: str) -> dict[str, float]:
            return {}

        async def moderate_object(self, key: str) -> dict[str, float]:
            moderation.set()
            return await asyncio.Future()

    scene.gate = Gate(Hanging(), Thresholds({"violence": (0.2, 0.4, 0.6)}))
    dispatcher = scene.dispatcher()
    (task_id,) = await scene.submit()
    async with asyncio.timeout(PATIENCE_S):
        await moderation.wait()
    await dispatcher.drain(0.05)
    task = await scene.task(task_id)
    assert (task.status, task.crashes) == (Status.PENDING, 0)
    assert (await scene.store.reads.counts(QUEUE))["leased"] == 0


@pytest.mark.parametrize(("end", "channel"), [("cancelled", "by message"), ("overdue", "by heartbeat")])
async def test_task_that_ends_during_rewriting_never_reaches_the_model(scene: Scene, end: str, channel: str) -> None:
    async def hang(prompt: str, seed: int) -> str:
        return await asyncio.Future()

    scene.rewriter = fake_rewriter(hang, timeout_s=60)
    dispatcher = scene.dispatcher(headroom=2)
    (task_id,) = await scene.submit(rewrite=True)
    assert {task.status for task in await scene.wait_for_end(await scene.submit(3))} == {Status.READY}
    called = len(scene.model.called)
    if end == "cancelled":
        await scene.store.cancel(task_id, "p")
    else:
        await make_due(scene.store, f"deadlines:{QUEUE}")
        assert await scene.store.end_overdue(QUEUE) == 1
    if channel == "by message":
        dispatcher.stop(task_id)
    await scene.until(lambda: not dispatcher._attempts)
    assert len(scene.model.called) == called == 3


async def test_queue_leases_only_during_its_models_turn(scene: Scene) -> None:
    turns = iter([False, False, True])
    answers = list[bool]()

    class Turn(DeviceTurn):
        async def has(self, queue: str) -> bool:
            answers.append(next(turns, True))
            return answers[-1]

    scene.turn = Turn(scene.store, "gpu", 1.0, [QUEUE])
    scene.dispatcher()
    await scene.wait_for_end(await scene.submit(3))
    assert answers[:3] == [False, False, True]
