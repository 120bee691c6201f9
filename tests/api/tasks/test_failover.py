"""Replication of the task store: acknowledged steps survive a failover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError
from support.ledger import ORGANIZATION, assert_books_balance, priced_task
from support.payloads import RESULT
from support.redis_process import ReplicatedRedis
from support.tasks import ALL, QUEUE, new_task

from serve_app.accounts.credits import CreditStore
from serve_app.storage import connection
from serve_app.storage.scripts import Replication
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import SubmissionUnknown
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

T = TypeVar("T")

PRODUCERS, CONSUMERS = 8, 4
TASKS = 800
LIMITS = Limits(max_active=TASKS, max_queued=TASKS, lease_s=2)
PRICE = 10


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedRedis]:
    servers = ReplicatedRedis(tmp_path)
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
async def redis(servers: ReplicatedRedis) -> AsyncIterator[Redis]:
    client = connection.connect(servers.url)
    yield client
    await client.aclose()


@pytest.mark.slow
async def test_failover_under_load_loses_no_acknowledged_task(servers: ReplicatedRedis, redis: Redis) -> None:
    store = TaskStore(redis, "gen:", LIMITS, Replication(replicas=1))
    credits = CreditStore(redis, "gen:")
    await credits.grant(ORGANIZATION, "first", TASKS * PRICE, by="test")
    acknowledged: list[str] = []
    ended: set[str] = set()

    async def retry(step: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await step()
            except (RedisError, SubmissionUnknown):
                await asyncio.sleep(0.05)

    async def produce() -> None:
        for _ in range(TASKS // PRODUCERS):
            task = priced_task(PRICE)
            await retry(lambda task=task: store.submit(task))
            acknowledged.append(task.id)

    async def consume() -> None:
        while len(ended) < TASKS:
            await retry(lambda: store.reap(QUEUE))
            for lease in await retry(lambda: store.lease(QUEUE, 4, ALL)):
                outcome = (QUEUE, lease.id, lease.attempt, Status.READY)
                if await retry(lambda outcome=outcome: store.complete(*outcome, result=RESULT)):
                    ended.add(lease.id)

    async def fail_over() -> None:
        while len(ended) < TASKS // 4:
            await asyncio.sleep(0.01)
        old_primary = await asyncio.to_thread(servers.kill_primary)
        await asyncio.to_thread(servers.await_failover, old_primary)
        await asyncio.to_thread(servers.return_as_replica, old_primary)

    async with asyncio.timeout(240):
        await asyncio.gather(
            *(produce() for _ in range(PRODUCERS)), *(consume() for _ in range(CONSUMERS)), fail_over()
        )
    for task_id in acknowledged:
        task = await store.reads.get(task_id)
        assert task is not None
        assert task.status is Status.READY
    assert len(set(acknowledged)) == TASKS
    balance = await assert_books_balance(credits)
    assert (balance.held, balance.spent) == (0, TASKS * PRICE)


async def test_submission_without_enough_replicas_is_unknown(servers: ReplicatedRedis, redis: Redis) -> None:
    store = TaskStore(redis, "gen:", LIMITS, Replication(replicas=2, limit_s=0.05))
    task = new_task()
    with pytest.raises(SubmissionUnknown):
        await store.submit(task)
    assert await store.reads.get(task.id) is not None
    one = TaskStore(redis, "gen:", LIMITS, Replication(replicas=1))
    assert (await one.submit(task)).created


def test_invalid_sentinel_url_is_refused() -> None:
    for address in ("host", "host/", "/main", "host:port/main"):
        with pytest.raises(ValueError, match=r"redis\+sentinel://host:26379/name"):
            connection.connect(f"redis+sentinel://{address}")
