"""Redis did what it was asked to, and the answer never came: the client library asks again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.deliveries import ended, members, outbox_of
from support.lost_answers import LosingAnswers
from support.tasks import ALL, LANE, lease_one, limited, make_due, new_task, stored

from serve_app.storage import connection
from serve_app.tasks.admission import CLAIM_S
from serve_app.tasks.limits import StillInWork
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Accepted, NewTask, Status


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


# Idempotency keys of requests that are being checked.


async def look(store: TaskStore, task: NewTask) -> str | None:
    return await store.look(
        lane=task.lane,
        project=task.project,
        organization=task.organization,
        price=task.price,
        key_id=task.key_id,
        idempotency_key=task.idempotency_key,
        body_hash=task.body_hash,
        task_id=task.id,
    )


async def test_a_key_is_kept_and_given_up_however_often_the_answers_are_lost(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    first, second = (new_task(idempotency_key="once", body_hash="b") for _ in range(2))
    assert await look(repeating, first) is None
    with pytest.raises(StillInWork):
        await look(repeating, second)
    await repeating.give_up_key(second.project, "once", second.id)
    with pytest.raises(StillInWork):
        await look(repeating, second)
    await repeating.give_up_key(first.project, "once", first.id)
    assert await look(repeating, second) is None
    assert (await repeating.submit(second)).created
    await repeating.give_up_key(second.project, "once", second.id)
    assert await look(repeating, first) == second.reply, "the key of a task that was made is not given up"
    assert losing.lost


async def test_a_key_of_a_request_that_died_is_free_after_a_while(store: TaskStore) -> None:
    task = new_task(idempotency_key="once", body_hash="b")
    await look(store, task)
    [kept] = [key async for key in store.redis.scan_iter(f"{store.prefix}idempotency:*", count=1000)]
    assert 0 < await store.redis.pttl(kept) <= CLAIM_S * 1000
    await store.submit(task)
    assert await store.redis.pttl(kept) > CLAIM_S * 1000


async def test_of_two_requests_on_their_way_the_first_to_be_submitted_counts(store: TaskStore) -> None:
    slow, fast = (new_task(idempotency_key="once", body_hash="b") for _ in range(2))
    await look(store, slow)
    [kept] = [key async for key in store.redis.scan_iter(f"{store.prefix}idempotency:*", count=1000)]
    await store.redis.delete(kept)  # it ran out
    await look(store, fast)
    assert (await store.submit(slow)).created
    assert await store.submit(fast) == Accepted(slow.reply, created=False)
