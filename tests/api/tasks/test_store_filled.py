"""Tasks that a benchmark fills a store with are the same as those that came one by one."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis
from support.tasks import LANE, lease_one, new_task

from benchmarks.store_filling import LIMITS, RESULT, TOGETHER, Filling
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status

MANY = 10 * TOGETHER + 3
"""More than one pipeline, and no whole number of groups."""


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, LIMITS)


@pytest.fixture
async def filling(redis: Redis, prefix: str) -> Filling:
    filling = Filling(redis, prefix)
    await filling.load()
    return filling


def tasks(n: int) -> list[NewTask]:
    return [new_task(idempotency_key=f"key-{number}", body_hash="0" * 64) for number in range(n)]


async def live(store: TaskStore, task: NewTask) -> None:
    """Takes the task through its life, call by call."""
    await store.submit(task)
    lease = await lease_one(store)
    await store.advance(LANE, lease.id, lease.attempt, Status.GENERATING, progress=0.5)
    assert await store.complete(LANE, lease.id, lease.attempt, Status.READY, result=RESULT, cost=task.price)


async def told(store: TaskStore, task: NewTask) -> tuple[dict[str, Any], set[str], list[str]]:
    """Its record but for ids, times and its turn; the names of all fields; the indexes that it is in, and whether it
    goes by itself.
    """
    key = f"{store.prefix}task:{task.id}"
    record = {str(name): value for name, value in (await store.redis.hgetall(key)).items()}
    own = ("id", "key_id", "created", "started", "finished", "vt")
    same = {name: value for name, value in record.items() if name not in own}
    indexes = [f"{name}:{LANE}" for name in ("queued", "leased", "deadlines")] + ["active:p", "tasks:p", "retention"]
    found = [index for index in indexes if await store.redis.zscore(store.prefix + index, task.id) is not None]
    goes = ["goes by itself"] if await store.redis.ttl(key) > 0 else []
    return same, set(record), found + goes


async def test_finished_tasks_are_as_if_they_had_come_one_by_one(store: TaskStore, filling: Filling) -> None:
    filled, single = tasks(MANY), new_task(idempotency_key="own", body_hash="0" * 64)
    await filling.finished(filled)
    await live(store, single)
    expected = await told(store, single)
    for n in (0, TOGETHER, MANY - 1):
        assert await told(store, filled[n]) == expected
    assert (await store.counts(LANE))["Ready"] == MANY + 1
    again = await store.submit(new_task(idempotency_key=filled[7].idempotency_key, body_hash="0" * 64))
    assert (again.created, again.reply) == (False, filled[7].reply)


async def test_waiting_tasks_wait_in_their_turn(store: TaskStore, filling: Filling) -> None:
    filled = tasks(MANY)
    await filling.waiting(filled)
    last = new_task(idempotency_key="own", body_hash="0" * 64)
    await store.submit(last)
    assert (await store.counts(LANE))["queued"] == MANY + 1
    _, fields, indexes = await told(store, filled[-1])
    assert (fields, indexes) == (await told(store, last))[1:]
    leased = await store.lease(LANE, MANY, LIMITS.max_active)
    assert [lease.id for lease in leased] == [task.id for task in filled]
