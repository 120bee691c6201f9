"""Nobody starves in the queue of a queue, and its virtual time stays in its range, whatever is asked for."""

from __future__ import annotations

import math

import pytest
from redis.asyncio import Redis
from support.tasks import QUEUE, get_task, lease_one, new_task

from serve_app.tasks.limits import Limits
from serve_app.tasks.scripts import ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore

FAR = 1e12
"""Where virtual time begins anew, as `fair.lua` says."""


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(max_active=2_000))


async def submit(store: TaskStore, project: str, n: int = 1, work: float = 1.0, weight: float = 1.0) -> list[str]:
    tasks = [new_task(project=project, work=work, weight=weight) for _ in range(n)]
    for task in tasks:
        await store.submit(task)
    return [task.id for task in tasks]


async def order(store: TaskStore) -> list[str]:
    """The projects of all waiting tasks, in the order in which single leases take them."""
    order: list[str] = []
    while leases := await store.lease(QUEUE, 1, 10_000):
        order.append((await get_task(store, leases[0].id)).project)
    return order


async def test_a_big_backlog_delays_another_project_by_one_task_at_most(store: TaskStore) -> None:
    await submit(store, "big", 300, work=3.0)
    # Some of the backlog is done already, so the clock is well under way.
    assert len(await store.lease(QUEUE, 100, 10_000)) == 100
    await submit(store, "small", work=3.0)
    assert "small" in (await order(store))[:2]


async def test_shares_follow_compute_cost_not_the_number_of_tasks(store: TaskStore) -> None:
    await submit(store, "heavy", 30, work=4.0)
    await submit(store, "light", 120)
    heavy = (await order(store))[:50].count("heavy")
    assert abs(heavy * 4 - (50 - heavy)) <= 8, "work done for both differs by more than two heavy tasks"


async def test_weight_buys_a_larger_share(store: TaskStore) -> None:
    await submit(store, "double", 60, weight=2.0)
    await submit(store, "single", 60)
    assert 38 <= (await order(store))[:60].count("double") <= 42


async def test_a_cancelled_backlog_leaves_no_debt(store: TaskStore) -> None:
    backlog = await submit(store, "regretful", 200)
    await submit(store, "steady", 50)
    for task_id in backlog:
        await store.cancel(task_id, "regretful")
    await submit(store, "regretful")
    assert "regretful" in (await order(store))[:3]


async def test_projects_that_went_idle_are_forgotten(store: TaskStore) -> None:
    for n in range(20):
        await submit(store, f"p{n}")
        await order(store)
    assert await store.redis.zcard(f"{store.prefix}fair:{QUEUE}") <= 2


async def test_a_leased_task_waits_no_longer_than_others_when_time_begins_anew(store: TaskStore) -> None:
    (old,) = await submit(store, "old")
    lease = await lease_one(store)
    await store.redis.hset(f"{store.prefix}task:{old}", "vt", FAR - 1)  # type: ignore[misc]
    await store.redis.set(f"{store.prefix}clock:{QUEUE}", FAR)
    await submit(store, "new", 3)
    assert await store.release(QUEUE, old, lease.attempt) is ReleaseOutcome.REQUEUED
    assert "old" in (await order(store))[:2]


async def test_quarantined_keep_their_place_when_time_begins_anew(store: TaskStore) -> None:
    (quarantined,) = await submit(store, "p")
    for _ in range(2):
        lease = await lease_one(store)
        await store.release(QUEUE, quarantined, lease.attempt, ReleaseCause.CRASH)
    await store.redis.set(f"{store.prefix}clock:{QUEUE}", FAR)
    await submit(store, "q", 2)
    assert (await lease_one(store)).id == quarantined


async def test_virtual_time_that_has_come_far_begins_anew_without_a_change_of_order(store: TaskStore) -> None:
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


async def test_no_weight_goes_past_its_bounds(store: TaskStore) -> None:
    for weight in (5e-324, 0.0, -1.0, math.nan, math.inf, 1e300):
        (task_id,) = await submit(store, "odd", weight=weight)
        stored_share = await store.redis.hget(f"{store.prefix}task:{task_id}", "share")  # type: ignore[misc]
        assert 0.01 <= float(str(stored_share)) <= 100
