"""Ended tasks with a webhook, and their deliveries, which become due without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from redis.asyncio import Redis

from serve_app.config.settings import WebhookSettings
from serve_app.inputs.ssrf import parse_destination
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status, Webhook, WebhookDestination
from serve_app.webhooks.outbox import AttemptRecord, Claim, Delivery, Outbox
from support.redis_dump import read_keys
from support.tasks import ALL, QUEUE, new_task

T = TypeVar("T")

BASE = "http://service.test"
URL = "http://one.test/hook"
OTHER_URL = "http://two.test/hook"


def destination_id(url: str, organization: str = "default") -> str:
    return WebhookDestination(parse_destination(url), organization).encode()


DESTINATION = destination_id(URL)
OTHER_DESTINATION = destination_id(OTHER_URL)
LIMITS = Limits(max_active=100_000, max_queued=100_000)
HOUR_S = 3600.0
_AT_A_TIME = 50

OK = AttemptRecord(1.0, 204)
DOWN = AttemptRecord(1.0, 503)


def hooked_task(url: str | None = URL, secret: str = "", **changes: Any) -> NewTask:
    """Returns a task whose result is delivered to `url`; None means without a webhook."""
    webhook = Webhook(url, parse_destination(url), BASE, secret) if url else None
    return new_task(webhook=webhook, **changes)


async def end_tasks(
    store: TaskStore,
    n: int = 1,
    url: str | None = URL,
    status: Status = Status.READY,
    secret: str = "",
    organization: str = "default",
    **outcome: Any,
) -> list[str]:
    """Submits and ends `n` tasks; no others may be queued. Returns their ids."""
    tasks = [hooked_task(url, secret, organization=organization) for _ in range(n)]
    for some in _split(tasks):
        await asyncio.gather(*map(store.submit, some))
    leases = await store.lease(QUEUE, n, ALL)
    assert {lease.id for lease in leases} == {task.id for task in tasks}
    for some in _split(leases):
        await asyncio.gather(*(store.complete(QUEUE, lease.id, lease.attempt, status, **outcome) for lease in some))
    return [task.id for task in tasks]


def _split(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """Splits calls into groups that get a connection each."""
    return (several[start : start + _AT_A_TIME] for start in range(0, len(several), _AT_A_TIME))


async def end_one_task(store: TaskStore, url: str | None = URL, **outcome: Any) -> str:
    [task_id] = await end_tasks(store, 1, url, **outcome)
    return task_id


def make_outbox(store: TaskStore, **policy: Any) -> Outbox:
    return Outbox(store.redis, store.prefix, WebhookSettings(**policy))


async def claim_one(outbox: Outbox) -> Claim:
    [claim] = await outbox.claim(1)
    return claim


async def get_delivery(outbox: Outbox, task_id: str) -> Delivery:
    delivery = await outbox.get(task_id)
    assert delivery is not None
    return delivery


async def members(redis: Redis, key: str) -> list[str]:
    return cast(list[str], await redis.zrange(key, 0, -1))


async def everything(store: TaskStore) -> dict[str, Any]:
    """Returns all values below the prefix, except those that expire within seconds."""
    entries = await read_keys(store.redis, store.prefix)
    passing = tuple(store.prefix + name for name in ("rate:", "call:", "memory"))
    return {key: value for key, value in entries.items() if not key.startswith(passing)}


async def make_deliveries_due(outbox: Outbox, *, claims: bool = True, waits: bool = True, pauses: bool = True) -> None:
    """Ends claims, waits before retries and pauses of destinations at once."""
    redis, prefix = outbox.redis, outbox.channel.removesuffix("outbox")
    if claims:
        for name in ("sending", "calls"):
            await _make_due(redis, f"{prefix}{name}:*")
    if waits:
        await _make_due(redis, f"{prefix}outbox:*")
    if pauses:
        async for key in redis.scan_iter(f"{prefix}destination:*", count=1000):
            if await cast(Awaitable[bool], redis.hexists(key, "open_until")):
                await cast(Awaitable[int], redis.hset(key, "open_until", "1"))
    await _make_due(redis, f"{prefix}outbox")


async def _make_due(redis: Redis, keys: str) -> None:
    async for key in redis.scan_iter(keys, count=1000):
        rows = await redis.zrange(key, 0, -1)
        await redis.zadd(key, {str(member): order for order, member in enumerate(rows, 1)})


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Returns once the condition holds."""
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)
