"""Redis ran a script but its answer was lost: the client library repeats the call."""

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
    """A store whose client loses the first answer to each script."""
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


async def test_repeated_lease_returns_the_same_tasks(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    await submit_tasks(store, 8)
    leases = await repeating.lease(QUEUE, 3, ALL)
    assert losing.lost_count
    assert [lease.attempt for lease in leases] == [1, 1, 1]
    assert sorted(await members(store.redis, f"{store.prefix}leased:{QUEUE}")) == sorted(lease.id for lease in leases)
    assert {lease.id for lease in await repeating.lease(QUEUE, 3, ALL)}.isdisjoint(lease.id for lease in leases)


async def test_reply_of_a_lease_expires_with_it(store: TaskStore) -> None:
    await submit_tasks(store, 1)
    await with_limits(store, lease_s=7).lease(QUEUE, 1, ALL)
    [call_key] = [key async for key in store.redis.scan_iter(f"{store.prefix}call:*", count=1000)]
    assert 0 < await store.redis.pttl(call_key) <= 7000


async def test_repeated_claim_returns_the_same_deliveries(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    ids = await end_tasks(store, 4)
    claims = [claim for _ in range(2) for claim in await make_outbox(repeating).claim(2)]
    assert sorted(claim.id for claim in claims) == sorted(ids)
    assert {claim.attempt for claim in claims} == {1}


async def test_repeated_steps_count_once(repeating: TaskStore, losing: LosingAnswers) -> None:
    [task_id] = await submit_tasks(repeating, 1)
    lease = await lease_one(repeating)
    assert await repeating.advance(QUEUE, task_id, lease.attempt, Status.GENERATING, progress=0.5)
    assert await repeating.heartbeat(QUEUE, [(task_id, lease.attempt)]) == []
    assert await repeating.complete(QUEUE, task_id, lease.attempt, Status.READY, result=RESULT)
    [other] = await submit_tasks(repeating, 1)
    assert await repeating.cancel(other, "p") is CancelOutcome.CANCELLED
    counts = await repeating.reads.counts(QUEUE)
    assert (counts["Ready"], counts["cancelled"]) == (1, 1)


async def precheck(store: TaskStore, task: NewTask) -> str | None:
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


async def test_repeated_calls_claim_and_release_an_idempotency_key(
    store: TaskStore, repeating: TaskStore, losing: LosingAnswers
) -> None:
    first, second = (new_task(idempotency_key="once", body_hash="b") for _ in range(2))
    assert await precheck(repeating, first) is None
    with pytest.raises(RequestInProgress):
        await precheck(repeating, second)
    await repeating.release_idempotency_key(second.project, "once", second.id)
    with pytest.raises(RequestInProgress):
        await precheck(repeating, second)
    await repeating.release_idempotency_key(first.project, "once", first.id)
    assert await precheck(repeating, second) is None
    assert (await repeating.submit(second)).created
    await repeating.release_idempotency_key(second.project, "once", second.id)
    assert await precheck(repeating, first) == second.reply, "an accepted task keeps its key"
    assert losing.lost_count


async def test_first_of_two_submissions_with_one_key_counts(store: TaskStore) -> None:
    slow, fast = (new_task(idempotency_key="once", body_hash="b") for _ in range(2))
    await precheck(store, slow)
    [claim_key] = [key async for key in store.redis.scan_iter(f"{store.prefix}idempotency:*", count=1000)]
    assert 0 < await store.redis.pttl(claim_key) <= CLAIM_S * 1000, "the key of a dead request is freed"
    await store.redis.delete(claim_key)
    await precheck(store, fast)
    assert (await store.submit(slow)).created
    assert await store.redis.pttl(claim_key) > CLAIM_S * 1000
    assert await store.submit(fast) == AcceptedTask(slow.reply, created=False)
