"""The virtual time of a lane stays in its range, whatever is asked for."""

from __future__ import annotations

import math

import pytest
from redis.asyncio import Redis
from support.tasks import ALL, LANE, lease_one, new_task

from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore

FAR = 1e12
"""Where virtual time begins anew, as `fair.lua` says."""


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(max_active=100))


async def submit(store: TaskStore, project: str, n: int, work: float = 1.0, weight: float = 1.0) -> list[str]:
    tasks = [new_task(project=project, work=work, weight=weight) for _ in range(n)]
    for task in tasks:
        await store.submit(task)
    return [task.id for task in tasks]


async def order(store: TaskStore) -> list[str]:
    """The projects of all waiting tasks, as single leases take them."""
    taken: list[str] = []
    while leases := await store.lease(LANE, 1, ALL):
        (lease,) = leases
        project = await store.redis.hget(f"{store.prefix}task:{lease.id}", "project")
        assert isinstance(project, str)
        taken.append(project)
    return taken


async def scores(store: TaskStore) -> list[float]:
    """Every virtual time that the lane holds."""
    found: list[float] = [float(await store.redis.get(f"{store.prefix}clock:{LANE}") or 0)]
    for index in ("fair", "queued", "suspects"):
        pairs = await store.redis.zrange(f"{store.prefix}{index}:{LANE}", 0, -1, withscores=True)
        found += [float(score) for _, score in pairs]
    return found


def takes_turns(order: list[str]) -> bool:
    """Whether neither of two projects got two tasks ahead of the other while both waited."""
    ahead = 0
    for n, project in enumerate(order):
        ahead += 1 if project == "first" else -1
        if len(set(order[n:])) == 2 and abs(ahead) > 2:
            return False
    return True


async def test_a_leased_task_waits_no_longer_than_others_when_time_begins_anew(store: TaskStore) -> None:
    (old,) = await submit(store, "old", 1)
    lease = await lease_one(store)
    await store.redis.hset(f"{store.prefix}task:{old}", "vt", FAR - 1)
    await store.redis.set(f"{store.prefix}clock:{LANE}", FAR)
    await submit(store, "new", 3)
    assert await store.release(LANE, old, lease.attempt, strike=False) == 1
    assert "old" in (await order(store))[:2]


async def test_suspects_keep_their_place_when_time_begins_anew(store: TaskStore) -> None:
    (suspect,) = await submit(store, "p", 1)
    for _ in range(2):
        lease = await lease_one(store)
        await store.release(LANE, suspect, lease.attempt, strike=True)
    await store.redis.set(f"{store.prefix}clock:{LANE}", FAR)
    await submit(store, "q", 2)
    assert (await lease_one(store)).id == suspect


async def test_virtual_time_that_has_come_far_begins_anew_without_a_change_of_order(store: TaskStore) -> None:
    await submit(store, "first", 1)
    await order(store)
    await store.redis.set(f"{store.prefix}clock:{LANE}", FAR - 1.5)
    for project in ("first", "second"):
        await submit(store, project, 6)
    taken = await order(store)
    assert len(taken) == 12
    assert takes_turns(taken), taken
    assert max(await scores(store)) < 100


@pytest.mark.parametrize("weight", [5e-324, 1e-9, 0.0, -1.0, math.nan, math.inf, 1e300])
async def test_no_weight_goes_past_its_bounds(store: TaskStore, weight: float) -> None:
    (task_id,) = await submit(store, "odd", 1, weight=weight)
    assert 0.01 <= float(str(await store.redis.hget(f"{store.prefix}task:{task_id}", "share"))) <= 100


@pytest.mark.parametrize("work", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_work_is_finite_and_positive(work: float) -> None:
    with pytest.raises(ValueError, match="work"):
        new_task(work=work)
