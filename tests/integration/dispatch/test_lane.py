"""A lane against a simulated model and the real store: what happens when something dies, hangs or changes its mind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from redis.asyncio import Redis
from support.job_records import new_job
from support.simulated_model import SimulatedModel
from support.tasks import LANE, new_task, stored

from serve_app.accounts.credits import Credits
from serve_app.config.models import ModelSettings
from serve_app.config.settings import DispatcherSettings
from serve_app.dispatch.attempt import Dependencies, Timeouts
from serve_app.dispatch.lane import Lane
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task

PRICE = 900
PATIENCE_S = 20


class Scene:
    """Lanes ("dispatchers") over one store and one model."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.store = TaskStore(redis, prefix, Limits(lease_s=2, max_active=500))
        self.model = SimulatedModel()
        self.lanes: list[Lane] = []
        self.rewrite: Callable[[str, int], Awaitable[str]] | None = None
        self._loops: dict[Lane, list[asyncio.Task[None]]] = {}

    def dispatcher(self, **settings: Any) -> Lane:
        chosen = DispatcherSettings(**settings)
        timeouts = Timeouts(chosen.start_s, chosen.stall_s, rewrite_s=0.2)
        dependencies = Dependencies(self.model.generate, timeouts, self.rewrite)
        lane = Lane(LANE, self.store, dependencies, chosen, ModelSettings(max_running=25))
        self.lanes.append(lane)
        self._loops[lane] = [asyncio.create_task(lane.lease()), asyncio.create_task(lane.heartbeat())]
        return lane

    async def kill(self, lane: Lane) -> None:
        """As `kill -9`: its loops stop, and so do its calls to the model."""
        while left := [task for task in (*self._loops[lane], *lane._tasks) if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.sleep(0)  # again, if need be: `wait_for` loses a cancellation that comes with its result

    async def submit(self, n: int = 1, prompt: str = "a star", rewrite: bool = False) -> list[str]:
        ids = []
        for _ in range(n):
            task = new_task(job=new_job(prompt=prompt, rewrite=rewrite).encode(), price=PRICE)
            await self.store.submit(task)
            ids.append(task.id)
        for lane in self.lanes:
            lane.wake.set()
        return ids

    async def task(self, task_id: str) -> Task:
        return await stored(self.store, task_id)

    async def ended(self, ids: list[str]) -> list[Task]:
        """The tasks once all have ended."""
        await self.until(lambda: self._all_ended(ids))
        return [await self.task(task_id) for task_id in ids]

    async def until(self, reached: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                outcome = reached()
                if await outcome if asyncio.iscoroutine(outcome) else outcome:
                    return
                await asyncio.sleep(0.01)

    async def _all_ended(self, ids: list[str]) -> bool:
        return all([(await self.task(task_id)).status.terminal for task_id in ids])

    async def close(self) -> None:
        for lane in self.lanes:
            await self.kill(lane)


@pytest.fixture
async def scene(redis: Redis, prefix: str) -> AsyncIterator[Scene]:
    await Credits(redis, prefix).grant("default", "first", 1000 * PRICE, by="test")
    scene = Scene(redis, prefix)
    yield scene
    await scene.close()


async def test_tasks_flow_through(scene: Scene) -> None:
    scene.dispatcher()
    tasks = await scene.ended(await scene.submit(40))
    assert {task.status for task in tasks} == {Status.READY}
    assert {task.cost for task in tasks} == {PRICE}
    assert {task.attempt for task in tasks} == {1}
    first = tasks[0]
    assert first.result is not None
    assert first.result["key"] == f"results/{first.id}/1/picture.png"


async def test_few_tasks_are_committed_before_they_start(scene: Scene) -> None:
    scene.model.admitting.clear()
    scene.dispatcher(headroom=4)
    ids = await scene.submit(30)
    await scene.until(lambda: len(scene.model.waiting) == 4)
    assert (await scene.store.counts(LANE))["leased"] == 4
    scene.model.admitting.set()
    await scene.ended(ids)


async def test_a_dead_replica_costs_its_tasks_one_strike_and_they_run_again_at_once(scene: Scene) -> None:
    scene.dispatcher()
    scene.model.finishing.clear()
    ids = await scene.submit(10)
    await scene.until(lambda: len(scene.model.running) == 10)
    scene.model.die()
    scene.model.finishing.set()
    tasks = await scene.ended(ids)
    assert {(task.status, task.attempt, task.strikes) for task in tasks} == {(Status.READY, 2, 1)}


async def test_a_dead_dispatcher_is_followed_by_another(scene: Scene) -> None:
    first = scene.dispatcher()
    scene.model.finishing.clear()
    ids = await scene.submit(8)
    await scene.until(lambda: len(scene.model.running) == 8)
    await scene.kill(first)
    scene.model.finishing.set()
    scene.dispatcher()

    async def all_reaped() -> bool:
        await scene.store.reap(LANE)
        return (await scene.store.counts(LANE)).get("reaped", 0) == 8

    await scene.until(all_reaped)
    tasks = await scene.ended(ids)
    assert {task.status for task in tasks} == {Status.READY}


async def test_poison_ends_alone_and_no_batch_mate_with_it(scene: Scene) -> None:
    scene.dispatcher(headroom=8)
    ids = await scene.submit(30)
    (poison,) = await scene.submit(1, prompt="poison")
    more = await scene.submit(30)
    tasks = await scene.ended([*ids, poison, *more])
    by_id = {task.id: task for task in tasks}
    assert by_id[poison].status is Status.ERROR
    assert by_id[poison].details is not None
    assert {by_id[task_id].status for task_id in [*ids, *more]} == {Status.READY}
    assert scene.model.deaths <= 3


async def test_cancelling_stops_the_work(scene: Scene) -> None:
    lane = scene.dispatcher()
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.running)
    await scene.store.cancel(task_id, "p")
    lane.stop(task_id)
    await scene.until(lambda: not scene.model.running)
    assert (await scene.task(task_id)).details == {"error": "Cancelled by the client"}
    assert scene.model.finished == {}


async def test_cancelled_work_stops_by_the_heartbeat_when_the_message_is_lost(scene: Scene) -> None:
    scene.dispatcher()
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.running)
    await scene.store.cancel(task_id, "p")
    await scene.until(lambda: not scene.model.running)


async def test_a_silent_model_counts_as_lost(scene: Scene) -> None:
    scene.dispatcher(stall_s=1.1)
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.started[task_id] == 2)
    scene.model.finishing.set()
    (task,) = await scene.ended([task_id])
    assert task.status is Status.READY
    assert task.strikes >= 1


async def test_a_model_that_does_not_begin_costs_no_strike(scene: Scene) -> None:
    scene.dispatcher(start_s=0.2)
    scene.model.admitting.clear()
    (task_id,) = await scene.submit()

    async def tried_twice() -> bool:
        return (await scene.task(task_id)).attempt >= 2

    await scene.until(tried_twice)
    scene.model.admitting.set()
    (task,) = await scene.ended([task_id])
    assert (task.status, task.strikes) == (Status.READY, 0)


async def test_draining_gives_back_what_has_not_begun_and_finishes_the_rest(scene: Scene) -> None:
    lane = scene.dispatcher(headroom=3)
    scene.model.finishing.clear()
    begun = await scene.submit(2)
    await scene.until(lambda: len(scene.model.running) == 2)
    scene.model.admitting.clear()
    waiting = await scene.submit(5)
    await scene.until(lambda: len(scene.model.waiting) == 3)

    drained = asyncio.create_task(lane.drain(PATIENCE_S))
    await scene.until(lambda: not scene.model.waiting)
    scene.model.finishing.set()
    await drained
    for task_id in begun:
        assert (await scene.task(task_id)).status is Status.READY
    for task_id in waiting:
        task = await scene.task(task_id)
        assert (task.status, task.strikes) == (Status.PENDING, 0)
    assert (await scene.store.counts(LANE))["leased"] == 0


async def test_a_drain_that_takes_too_long_gives_the_rest_back(scene: Scene) -> None:
    lane = scene.dispatcher()
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.running)
    await lane.drain(0.05)
    task = await scene.task(task_id)
    assert (task.status, task.strikes) == (Status.PENDING, 0)


async def test_two_dispatchers_share_the_work_and_double_nothing(scene: Scene) -> None:
    scene.model.admitting.clear()
    for _ in range(2):
        scene.dispatcher(headroom=4)
    ids = await scene.submit(200)
    # One dispatcher alone would have its headroom waiting, and no more.
    await scene.until(lambda: len(scene.model.waiting) == 8)
    scene.model.admitting.set()
    tasks = await scene.ended(ids)
    assert {task.status for task in tasks} == {Status.READY}
    assert set(scene.model.finished.values()) == {1}


async def test_a_prompt_is_rewritten_where_that_is_asked_for(scene: Scene) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        return f"{prompt}, at dawn, {seed}"

    scene.rewrite = rewrite
    scene.dispatcher()
    (plain,) = await scene.ended(await scene.submit())
    (rewritten,) = await scene.ended(await scene.submit(rewrite=True))
    assert plain.result is not None
    assert plain.result["prompt"] == "a star"
    assert rewritten.result is not None
    assert rewritten.result["prompt"] == "a star, at dawn, 1"


@pytest.mark.parametrize("failure", ["error", "silence"])
async def test_a_rewriter_that_fails_leaves_the_prompt_as_it_is(scene: Scene, failure: str) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        if failure == "silence":
            await asyncio.Event().wait()
        raise ActorUnavailableError("gone", None)

    scene.rewrite = rewrite
    scene.dispatcher()
    (task,) = await scene.ended(await scene.submit(rewrite=True))
    assert task.status is Status.READY
    assert task.result is not None
    assert task.result["prompt"] == "a star"


async def test_a_slow_rewriter_keeps_no_model_idle(scene: Scene) -> None:
    slow = asyncio.Event()

    async def rewrite(prompt: str, seed: int) -> str:
        await slow.wait()
        return prompt

    scene.rewrite = rewrite
    scene.dispatcher(headroom=2, start_s=30)
    waiting = await scene.submit(4, rewrite=True)
    plain = await scene.submit(3)
    assert {task.status for task in await scene.ended(plain)} == {Status.READY}
    slow.set()
    await scene.ended(waiting)
