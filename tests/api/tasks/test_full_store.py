"""A full Redis server: new tasks are refused, accepted ones end, and the sweep frees memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError
from support.deliveries import claim_one, get_delivery, hooked_task, make_outbox
from support.payloads import RESULT, new_result
from support.tasks import ALL, QUEUE, get_task, lease_one, new_task

from serve_app.accounts.credits import CreditStore
from serve_app.accounts.keys import KeyStore
from serve_app.inputs.links import get_link_secret
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import StoreFull
from serve_app.tasks.scripts import CancelOutcome, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import AttemptRecord, DeliveryOutcome, DeliveryState

LIMITS = Limits(max_memory=0.8)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def store(own_server: EmbeddedRedis, prefix: str) -> AsyncIterator[TaskStore]:
    redis = connection.connect(own_server.url, retries=0)
    yield TaskStore(redis, prefix, LIMITS)
    await redis.config_set("maxmemory", 0)
    await redis.aclose()


async def use(store: TaskStore, used_fraction: float) -> None:
    """Sets the server's memory limit so that this fraction of it is used."""
    used = (await store.reads.memory()).used
    await store.redis.config_set("maxmemory", int(used / used_fraction))
    await store.redis.delete(f"{store.prefix}memory")  # in place of waiting for the reading to expire


async def assert_full(redis: Redis) -> None:
    with pytest.raises(OutOfMemoryError):
        await redis.set("one", "more")


async def fall_due(store: TaskStore, index: str, task_id: str) -> None:
    """Makes an entry of a time index due, on a full server."""
    script = "#!lua flags=allow-oom\nreturn redis.call('ZADD', KEYS[1], 'XX', 1, ARGV[1])"
    await cast(Awaitable[int], store.redis.eval(script, 1, f"{store.prefix}{index}", task_id))


async def submit_task(store: TaskStore) -> str:
    task = new_task()
    await store.submit(task)
    return task.id


async def test_watermark_refuses_submissions_and_later_leases(store: TaskStore) -> None:
    task_id = await submit_task(store)
    await use(store, 0.85)
    with pytest.raises(StoreFull):
        await submit_task(store)
    lease = await lease_one(store)
    assert await store.complete(QUEUE, task_id, lease.attempt, Status.READY, result=RESULT)
    await use(store, 0.75)
    waiting = await submit_task(store)
    await use(store, 0.95)
    assert await store.lease(QUEUE, 1, ALL) == []
    await use(store, 0.5)
    assert (await lease_one(store)).id == waiting


async def test_service_restarts_on_a_full_store(store: TaskStore) -> None:
    redis, prefix = store.redis, store.prefix
    keys, credits = KeyStore(redis, prefix), CreditStore(redis, prefix)

    async def start() -> bytes:
        secret = await get_link_secret(redis, prefix)
        await credits.grant("default", "first", 1000, by="settings", note="first")
        return secret

    await keys.create("laptop")
    secret = await start()
    await use(store, 1.5)
    await assert_full(redis)
    assert await start() == secret
    await store.heartbeat_dispatcher()
    assert await store.reads.has_dispatcher()
    with pytest.raises(StoreFull):
        await submit_task(store)


async def test_leased_tasks_end_on_a_full_store(store: TaskStore) -> None:
    ready, released, expired, cancelled, overdue = [await submit_task(store) for _ in range(5)]
    leases = {lease.id: lease for lease in await store.lease(QUEUE, 5, ALL)}
    await use(store, 1.5)
    await assert_full(store.redis)
    for task_id, lease in leases.items():
        assert await store.heartbeat(QUEUE, [(task_id, lease.attempt)]) == []
        assert await store.advance(QUEUE, task_id, lease.attempt, Status.REASONING, progress=0.5)
    assert await store.complete(QUEUE, ready, 1, Status.READY, result=new_result("k" * 1000))
    assert await store.release(QUEUE, released, 1) is ReleaseOutcome.REQUEUED
    assert await store.cancel(cancelled, "p") is CancelOutcome.CANCELLED
    await fall_due(store, f"deadlines:{QUEUE}", overdue)
    assert await store.end_overdue(QUEUE) == 1
    await fall_due(store, f"leased:{QUEUE}", expired)
    assert await store.reap(QUEUE) == 1
    statuses = {task_id: (await get_task(store, task_id)).status for task_id in leases}
    assert statuses == {
        ready: Status.READY,
        released: Status.PENDING,
        expired: Status.PENDING,
        cancelled: Status.ERROR,
        overdue: Status.ERROR,
    }
    assert {(await get_task(store, task_id)).crashes for task_id in leases} == {0}


async def test_full_store_delivers_webhooks_and_sweeps(store: TaskStore) -> None:
    task = hooked_task()
    await store.submit(task)
    lease = await lease_one(store)
    await use(store, 1.5)
    assert await store.complete(QUEUE, task.id, lease.attempt, Status.READY, result=RESULT)
    outbox = make_outbox(store)
    claim = await claim_one(outbox)
    await outbox.prolong([claim])
    assert await outbox.record(claim, AttemptRecord(1.0, 204), DeliveryOutcome.DELIVERED)
    assert (await get_delivery(outbox, task.id)).state is DeliveryState.DELIVERED
    await fall_due(store, "retention", task.id)
    assert await store.sweep() == [task.id]
    assert await store.sweep([task.id]) == []
    assert await store.reads.get(task.id) is None
