"""The queue under many hands: everything is done once, nobody starves."""

from __future__ import annotations

import asyncio
from collections import Counter

from redis.asyncio import Redis
from support.tasks import LANE, new_task

from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

PRODUCERS = CONSUMERS = 20
TASKS = 4_000


async def test_twenty_producers_and_twenty_consumers_lose_and_double_nothing(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix, Limits(max_queued=TASKS, max_active=TASKS))
    submitted: list[str] = []
    done: Counter[str] = Counter()
    by_consumer: Counter[int] = Counter()

    async def produce(producer: int) -> None:
        for _ in range(TASKS // PRODUCERS):
            task = new_task(project=f"p{producer}")
            await store.submit(task)
            submitted.append(task.id)

    async def consume(consumer: int) -> None:
        while done.total() < TASKS:
            leases = await store.lease(LANE, 2, 10_000)
            if not leases:
                await asyncio.sleep(0.001)
            for lease in leases:
                # Now and then a consumer gives its task back instead, or publishes twice.
                if lease.attempt == 1 and hash(lease.id) % 7 == 0:
                    await store.release(LANE, lease.id, lease.attempt, strike=False)
                    continue
                for _ in range(1 + hash(lease.id) % 2):
                    assert await store.complete(LANE, lease.id, lease.attempt, Status.READY, result={"by": consumer})
                done[lease.id] += 1
                by_consumer[consumer] += 1

    async with asyncio.timeout(120):
        await asyncio.gather(*map(produce, range(PRODUCERS)), *map(consume, range(CONSUMERS)))

    assert set(done) == set(submitted)
    assert set(done.values()) == {1}
    assert len(by_consumer) == CONSUMERS
    assert min(by_consumer.values()) > TASKS / CONSUMERS / 4, "a consumer starved"
    counts = await store.counts(LANE)
    assert (counts["accepted"], counts["Ready"]) == (TASKS, TASKS)
    assert (counts["queued"], counts["leased"]) == (0, 0)


async def lease_order(store: TaskStore) -> list[str]:
    """The projects of all waiting tasks, in the order in which single leases take them."""
    order: list[str] = []
    while leases := await store.lease(LANE, 1, 10_000):
        task = await store.get(leases[0].id)
        assert task is not None
        order.append(task.project)
    return order


async def test_a_big_backlog_delays_another_project_by_one_task_at_most(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix, Limits(max_active=2_000))
    for _ in range(1_000):
        await store.submit(new_task(project="big", work=3.0))
    # Some of the backlog is done already, so the clock is well under way.
    assert len(await store.lease(LANE, 100, 10_000)) == 100
    await store.submit(new_task(project="small", work=3.0))
    assert "small" in (await lease_order(store))[:2]


async def test_shares_follow_compute_cost_not_the_number_of_tasks(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix, Limits(max_active=2_000))
    for _ in range(30):
        await store.submit(new_task(project="heavy", work=4.0))
    for _ in range(120):
        await store.submit(new_task(project="light", work=1.0))
    order = await lease_order(store)
    heavy = order[:50].count("heavy")
    assert abs(heavy * 4 - (50 - heavy)) <= 8, "work done for both differs by more than two heavy tasks"


async def test_weight_buys_a_larger_share(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix, Limits(max_active=2_000))
    for _ in range(60):
        await store.submit(new_task(project="double", weight=2.0))
        await store.submit(new_task(project="single"))
    assert 38 <= (await lease_order(store))[:60].count("double") <= 42


async def test_a_cancelled_backlog_leaves_no_debt(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix, Limits(max_active=2_000))
    backlog = [new_task(project="regretful") for _ in range(200)]
    for task in backlog:
        await store.submit(task)
    for _ in range(50):
        await store.submit(new_task(project="steady"))
    for task in backlog:
        await store.cancel(task.id, "regretful")
    await store.submit(new_task(project="regretful"))
    assert "regretful" in (await lease_order(store))[:3]


async def test_projects_that_went_idle_are_forgotten(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix)
    for n in range(50):
        await store.submit(new_task(project=f"p{n}"))
        await lease_order(store)
    assert await redis.zcard(f"{prefix}fair:{LANE}") <= 2
