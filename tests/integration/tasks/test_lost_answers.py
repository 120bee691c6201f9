"""Redis did what it was asked to, and the answer never came: the client library asks again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.deliveries import ended, members, outbox_of
from support.lost_answers import LosingAnswers
from support.tasks import ALL, LANE, lease_one, limited, make_due, new_task, stored

from serve_app.redis_store import connection
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


@pytest.fixture
async def repeating(redis_url: str, prefix: str) -> AsyncIterator[TaskStore]:
    """The store by way of a client that loses the first answer to each script."""
    client = connection.connect(redis_url)
    yield TaskStore(client, prefix)
    await client.aclose()


@pytest.fixture
def losing(repeating: TaskStore) -> LosingAnswers:
    return LosingAnswers(repeating.redis)


async def submitted(store: TaskStore, n: int) -> list[str]:
    tasks = [new_task() for _ in range(n)]
    for task in tasks:
        await store.submit(task)
    return [task.id for task in tasks]


async def test_a_repeated_lease_hands_out_the_same_tasks_and_no_more(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    await submitted(store, 8)
    leases = await repeating.lease(LANE, 3, ALL)
    assert losing.lost
    assert len(leases) == 3
    assert {lease.attempt for lease in leases} == {1}
    assert sorted(await members(store.redis, f"{store.prefix}leased:{LANE}")) == sorted(lease.id for lease in leases)


async def test_the_next_lease_hands_out_others(store: TaskStore, repeating: TaskStore, losing: LosingAnswers) -> None:
    ids = await submitted(store, 6)
    found = [lease.id for _ in range(3) for lease in await repeating.lease(LANE, 2, ALL)]
    assert sorted(found) == sorted(ids)


async def test_what_a_lease_handed_out_is_remembered_no_longer_than_the_lease(store: TaskStore) -> None:
    await submitted(store, 1)
    await limited(store, lease_s=7).lease(LANE, 1, ALL)
    [kept] = [key async for key in store.redis.scan_iter(f"{store.prefix}call:*", count=1000)]
    assert 0 < await store.redis.pttl(kept) <= 7000


async def test_a_repeated_claim_hands_out_the_same_deliveries(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    ids = await ended(store, 4)
    claims = [claim for _ in range(2) for claim in await outbox_of(repeating).claim(2)]
    assert sorted(claim.id for claim in claims) == sorted(ids)
    assert {claim.attempt for claim in claims} == {1}


async def test_the_life_of_a_task_is_the_same(repeating: TaskStore, losing: LosingAnswers) -> None:
    [task_id] = await submitted(repeating, 1)
    lease = await lease_one(repeating)
    assert await repeating.advance(LANE, task_id, lease.attempt, Status.GENERATING, progress=0.5)
    assert await repeating.heartbeat(LANE, [(task_id, lease.attempt)]) == []
    assert await repeating.complete(LANE, task_id, lease.attempt, Status.READY, result={})
    assert (await repeating.counts(LANE))["Ready"] == 1


async def test_a_repeated_cancellation_is_one(repeating: TaskStore, losing: LosingAnswers) -> None:
    [task_id] = await submitted(repeating, 1)
    assert await repeating.cancel(task_id, "p") == 1
    assert (await repeating.counts(LANE))["cancelled"] == 1


# Leases that run out.


@pytest.mark.parametrize("begun", [False, True])
async def test_only_work_that_had_begun_costs_a_strike_when_its_dispatcher_is_lost(
    store: TaskStore, begun: bool
) -> None:
    [task_id] = await submitted(store, 1)
    for _ in range(2):
        lease = await lease_one(store)
        await store.advance(LANE, task_id, lease.attempt, Status.GENERATING if begun else Status.REASONING)
        await make_due(store, f"leased:{LANE}")
        assert await store.reap(LANE) == 1
    task = await stored(store, task_id)
    assert (task.status, task.strikes) == (Status.PENDING, 2 if begun else 0)


async def test_what_another_attempt_began_is_no_strike(store: TaskStore, redis: Redis) -> None:
    [task_id] = await submitted(store, 1)
    lease = await lease_one(store)
    await store.advance(LANE, task_id, lease.attempt, Status.GENERATING)
    assert await store.release(LANE, task_id, lease.attempt, strike=False) == 1
    await lease_one(store)
    await make_due(store, f"leased:{LANE}")
    await store.reap(LANE)
    assert (await stored(store, task_id)).strikes == 0
