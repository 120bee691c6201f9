"""The order of leases: fair shares among projects, turns of models on a device, and wake-ups of dispatchers."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, get_task, lease_one, new_task

from serve_app.planning.simulation import FairQueue, SimulatedTask
from serve_app.tasks.limits import Limits
from serve_app.tasks.scripts import CancelOutcome, ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

FAR = 1e12
"""Virtual time at which `fair.lua` resets it."""


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(max_active=2_000))


async def submit(store: TaskStore, project: str, n: int = 1, work: float = 1.0, weight: float = 1.0) -> list[str]:
    tasks = [new_task(project=project, work=work, weight=weight) for _ in range(n)]
    for task in tasks:
        await store.submit(task)
    return [task.id for task in tasks]


async def order(store: TaskStore) -> list[str]:
    """Leases all tasks one by one. Returns their projects."""
    order: list[str] = []
    while leases := await store.lease(QUEUE, 1, 10_000):
        order.append((await get_task(store, leases[0].id)).project)
    return order


async def test_backlog_delays_another_project_by_at_most_one_task(store: TaskStore) -> None:
    await submit(store, "big", 60, work=3.0)
    assert len(await store.lease(QUEUE, 30, ALL)) == 30, "the clock is well under way"
    await submit(store, "small", work=3.0)
    assert "small" in (await order(store))[:2]


async def test_shares_follow_work_rather_than_tasks(store: TaskStore) -> None:
    await submit(store, "heavy", 15, work=4.0)
    await submit(store, "light", 60)
    heavy = (await order(store))[:30].count("heavy")
    assert abs(heavy * 4 - (30 - heavy)) <= 8, "work done for both differs by at most two heavy tasks"


async def test_double_weight_gets_a_double_share(store: TaskStore) -> None:
    await submit(store, "double", 30, weight=2.0)
    await submit(store, "single", 30)
    assert 19 <= (await order(store))[:30].count("double") <= 21


async def test_cancelled_backlog_leaves_no_debt(store: TaskStore) -> None:
    backlog = await submit(store, "regretful", 40)
    await submit(store, "steady", 10)
    for task_id in backlog:
        await store.cancel(task_id, "regretful")
    await submit(store, "regretful")
    assert "regretful" in (await order(store))[:3]


async def test_idle_projects_are_forgotten(store: TaskStore) -> None:
    for n in range(20):
        await submit(store, f"p{n}")
        await order(store)
    assert await store.redis.zcard(f"{store.prefix}fair:{QUEUE}") <= 2


async def test_requeued_task_keeps_its_turn_when_virtual_time_resets(store: TaskStore) -> None:
    (old,) = await submit(store, "old")
    lease = await lease_one(store)
    await store.redis.hset(f"{store.prefix}task:{old}", "vt", FAR - 1)  # type: ignore[misc]
    await store.redis.set(f"{store.prefix}clock:{QUEUE}", FAR)
    await submit(store, "new", 3)
    assert await store.release(QUEUE, old, lease.attempt) is ReleaseOutcome.REQUEUED
    assert "old" in (await order(store))[:2]


async def test_quarantined_task_keeps_its_turn_when_virtual_time_resets(store: TaskStore) -> None:
    (quarantined,) = await submit(store, "p")
    for _ in range(2):
        lease = await lease_one(store)
        await store.release(QUEUE, quarantined, lease.attempt, ReleaseCause.CRASH)
    await store.redis.set(f"{store.prefix}clock:{QUEUE}", FAR)
    await submit(store, "q", 2)
    assert (await lease_one(store)).id == quarantined


async def test_reset_of_virtual_time_keeps_the_order(store: TaskStore) -> None:
    await submit(store, "first")
    await order(store)
    await store.redis.set(f"{store.prefix}clock:{QUEUE}", FAR - 1.5)
    for project in ("first", "second"):
        await submit(store, project, 6)
    owners = await order(store)
    assert len(owners) == 12
    for n in range(1, 12):
        ahead = owners[:n].count("first") - owners[:n].count("second")
        assert abs(ahead) <= 2 or len(set(owners[n:])) == 1, owners
    assert float(await store.redis.get(f"{store.prefix}clock:{QUEUE}") or 0) < 100


async def test_weights_are_clamped(store: TaskStore) -> None:
    for weight in (5e-324, 0.0, -1.0, math.nan, math.inf, 1e300):
        (task_id,) = await submit(store, "odd", weight=weight)
        stored_share = await store.redis.hget(f"{store.prefix}task:{task_id}", "share")  # type: ignore[misc]
        assert 0.01 <= float(str(stored_share)) <= 100


@pytest.mark.parametrize("seed", range(4))
async def test_simulated_queue_has_the_order_of_the_store(store: TaskStore, seed: int) -> None:
    chance, queue = random.Random(seed), FairQueue()
    names = dict[SimulatedTask, str]()
    for number in range(100):
        if chance.random() < 0.6 or not len(queue):
            tenant, size = chance.choice("abc"), chance.choice((0.25, 1.0, 3.0))
            # At the same virtual time, the store takes the lower id.
            await store.submit(new_task(id=f"{number:04}", project=tenant, work=4 * size))
            task = SimulatedTask(0.0, size, 4, tenant)
            names[task] = f"{number:04}"
            queue.push(task)
        else:
            [lease] = await store.lease(QUEUE, 1, ALL)
            assert lease.id == names[queue.pop()]
            await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT)


QUEUES = ("a", "b", "c")
"""Queues of models that share a device."""
LONG, NONE = 3600.0, 0.0
"""Seconds of a turn while others wait."""


async def test_model_keeps_its_turn_while_it_has_tasks(store: TaskStore) -> None:
    assert await store.device_turn("gpu0", LONG, QUEUES) is None
    await store.submit(new_task(queue="b"))
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b"
    await store.submit(new_task(queue="a"))
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b"
    [lease] = await store.lease("b", 1, 10)
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b", "its last task is running"
    assert await store.release("b", lease.id, lease.attempt) is ReleaseOutcome.REQUEUED
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b"
    assert await store.device_turn("gpu1", LONG, ("a", "c")) == "a", "the device is another"


async def test_turn_passes_to_the_model_that_waited_longest(store: TaskStore) -> None:
    for _ in range(3):
        await store.submit(new_task(queue="a"))
    assert await store.device_turn("gpu0", LONG, QUEUES) == "a"
    for queue in ("c", "b"):
        await store.submit(new_task(queue=queue))
        assert await store.device_turn("gpu0", LONG, QUEUES) == "a"
        await asyncio.sleep(0.002)  # waits are counted in milliseconds
    assert [await store.device_turn("gpu0", NONE, QUEUES) for _ in range(2)] == ["c", "b"]
    [lease] = await store.lease("b", 1, 10)
    assert await store.cancel(lease.id, "p") is CancelOutcome.CANCELLED
    assert await store.device_turn("gpu0", LONG, QUEUES) == "a"
    await store.redis.config_set("maxmemory", 1)
    try:
        assert await store.device_turn("gpu0", NONE, QUEUES) == "c", "turns need no memory"
    finally:
        await store.redis.config_set("maxmemory", 0)


async def listen(store: TaskStore, stack: AsyncExitStack, dispatcher: str) -> PubSub:
    pubsub = await stack.enter_async_context(store.redis.pubsub(ignore_subscribe_messages=True))
    await pubsub.subscribe(store.channel(f"wake:{dispatcher}"))
    await pubsub.get_message(timeout=1)
    return pubsub


async def wake_ups(pubsub: PubSub) -> list[str]:
    """Returns the queues for which the dispatcher was woken."""
    queues: list[str] = []
    while message := await pubsub.get_message(timeout=0.02):
        queues.append(message["data"])
    return queues


async def test_task_wakes_one_dispatcher_with_capacity(store: TaskStore) -> None:
    async with AsyncExitStack() as stack:
        first, second = [await listen(store, stack, name) for name in ("first", "second")]
        for name in ("gone", "first", "second"):
            assert await store.lease(QUEUE, 2, ALL, name) == []
        await store.submit(new_task())
        assert (await wake_ups(first), await wake_ups(second)) == ([QUEUE], [])
        assert await store.lease(QUEUE, 0, ALL, "first") == []  # no capacity left
        assert (await wake_ups(first), await wake_ups(second)) == ([], [QUEUE])
        [lease] = await store.lease(QUEUE, 1, 1, "second")  # no capacity left
        await store.submit(new_task())
        assert (await wake_ups(first), await wake_ups(second)) == ([], [])
        assert await store.lease(QUEUE, 1, 1, "first") == []  # the window is full
        await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT)
        assert (await wake_ups(first), await wake_ups(second)) == ([QUEUE], [])
