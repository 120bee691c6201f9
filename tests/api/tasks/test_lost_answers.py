"""Redis did what it was asked to, and the answer never came: the client library asks again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from support.deliveries import end_tasks, make_outbox, members
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, lease_one, new_task, with_limits

from serve_app.storage import connection
from serve_app.tasks.rejections import RequestInProgress
from serve_app.tasks.scripts import CancelOutcome
from serve_app.tasks.store import CLAIM_S, TaskStore
from serve_app.tasks.task import AcceptedTask, NewTask, Status


class LosingAnswers:
    """Sends every script of `redis` twice; the caller sees the second answer."""

    def __init__(self, redis: Redis) -> None:
        self._execute = redis.execute_command
        self.lost_count = 0
        redis.execute_command = self._twice

    async def _twice(self, *command: Any, **options: Any) -> Any:
        if command[0] == "EVALSHA":
            self.lost_count += 1
            await self._execute(*command, **options)
        return await self._execute(*command, **options)


@pytest.fixture
async def repeating(redis_url: str, prefix: str) -> AsyncIterator[TaskStore]:
    """The store by way of a client that loses the first answer to each script."""
    client = connection.connect(redis_url)
    yield TaskStore(client, prefix)
    await client.aclose()


@pytest.fixture
def losing(repeating: TaskStore) -> LosingAnswers:
    return LosingAnswers(repeating.redis)


async def submit_tasks(store: TaskStore, n: int) -> list[str]:
    tasks = [new_task() for _ in range(n)]
    for task in tasks:
        await store.submit(task)
    return [task.id for task in tasks]


async def test_a_repeated_lease_hands_out_the_same_tasks_and_no_more(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    await submit_tasks(store, 8)
    leases = await repeating.lease(QUEUE, 3, ALL)
    assert losing.lost_count
    assert [lease.attempt for lease in leases] == [1, 1, 1]
    assert sorted(await members(store.redis, f"{store.prefix}leased:{QUEUE}")) == sorted(lease.id for lease in leases)
    assert {lease.id for lease in await repeating.lease(QUEUE, 3, ALL)}.isdisjoint(lease.id for lease in leases)


async def test_what_a_lease_handed_out_is_remembered_no_longer_than_the_lease(store: TaskStore) -> None:
    await submit_tasks(store, 1)
    await with_limits(store, lease_s=7).lease(QUEUE, 1, ALL)
    [call_key] = [key async for key in store.redis.scan_iter(f"{store.prefix}call:*", count=1000)]
    assert 0 < await store.redis.pttl(call_key) <= 7000


async def test_a_repeated_claim_hands_out_the_same_deliveries(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    ids = await end_tasks(store, 4)
    claims = [claim for _ in range(2) for claim in await make_outbox(repeating).claim(2)]
    assert sorted(claim.id for claim in claims) == sorted(ids)
    assert {claim.attempt for claim in claims} == {1}


async def test_the_life_of_a_task_is_the_same(repeating: TaskStore, losing: LosingAnswers) -> None:
    [task_id] = await submit_tasks(repeating, 1)
    lease = await lease_one(repeating)
    assert await repeating.advance(QUEUE, task_id, lease.attempt, Status.GENERATING, progress=0.5)
    assert await repeating.heartbeat(QUEUE, [(task_id, lease.attempt)]) == []
    assert await repeating.complete(QUEUE, task_id, lease.attempt, Status.READY, result=RESULT)
    [other] = await submit_tasks(repeating, 1)
    assert await repeating.cancel(other, "p") is CancelOutcome.CANCELLED
    counts = await repeating.reads.counts(QUEUE)
    assert (counts["Ready"], counts["cancelled"]) == (1, 1)


async def look(store: TaskStore, task: NewTask) -> str | None:
    return await store.precheck(
        queue=task.queue,
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
    with pytest.raises(RequestInProgress):
        await look(repeating, second)
    await repeating.release_idempotency_key(second.project, "once", second.id)
    with pytest.raises(RequestInProgress):
        await look(repeating, second)
    await repeating.release_idempotency_key(first.project, "once", first.id)
    assert await look(repeating, second) is None
    assert (await repeating.submit(second)).created
    await repeating.release_idempotency_key(second.project, "once", second.id)
    assert await look(repeating, first) == second.reply, "the key of a task that was made is not given up"
    assert losing.lost_count


async def test_of_two_requests_on_their_way_the_first_to_be_submitted_counts(store: TaskStore) -> None:
    slow, fast = (new_task(idempotency_key="once", body_hash="b") for _ in range(2))
    await look(store, slow)
    [claim_key] = [key async for key in store.redis.scan_iter(f"{store.prefix}idempotency:*", count=1000)]
    assert 0 < await store.redis.pttl(claim_key) <= CLAIM_S * 1000, "of a request that died it is free after a while"
    await store.redis.delete(claim_key)
    await look(store, fast)
    assert (await store.submit(slow)).created
    assert await store.redis.pttl(claim_key) > CLAIM_S * 1000
    assert await store.submit(fast) == AcceptedTask(slow.reply, created=False)
