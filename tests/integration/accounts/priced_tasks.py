"""Tasks that cost something, and what tests of money look at."""

from __future__ import annotations

import uuid
from typing import Any

from redis.asyncio import Redis

from serve_app.accounts.credits import Balance, Credits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, NewTask

LANE = "lane"


def priced_task(price: int, **changes: Any) -> NewTask:
    task_id = changes.pop("id", None) or str(uuid.uuid4())
    defaults: dict[str, Any] = {
        "id": task_id,
        "project": "p",
        "organization": "acme",
        "lane": LANE,
        "endpoint": "gen-test",
        "job": "{}",
        "work": 1.0,
        # A key of its own: tests submit faster than any key may.
        "key_id": task_id,
        "reply": f'{{"id": "{task_id}"}}',
        "price": price,
    }
    return NewTask(**(defaults | changes))


async def lease_one(store: TaskStore) -> Lease:
    (lease,) = await store.lease(LANE, "d", 1, 1000)
    return lease


async def due(store: TaskStore, index: str) -> None:
    """Makes every entry of a time index due, in place of waiting."""
    key = store.prefix + index
    for member in await store.redis.zrange(key, 0, -1):
        await store.redis.zadd(key, {str(member): 1})


async def contents(redis: Redis, prefix: str) -> dict[str, Any]:
    """Everything under the prefix, as it is stored."""
    return {name: await redis.dump(name) async for name in redis.scan_iter(f"{prefix}*", count=1000)}


async def assert_books_balance(credits: Credits, organization: str = "acme") -> Balance:
    """What holds after every step. Returns the balance."""
    found = await credits.balance(organization)
    entries, more = await credits.ledger(organization, 100_000)
    assert more is None
    assert sum(entry.amount for entry in entries) == found.balance
    assert found.granted == found.balance + found.held + found.spent
    assert min(found.balance, found.held, found.spent) >= 0
    running = 0
    for entry in reversed(entries):
        running += entry.amount
        assert entry.balance == running >= 0
    return found
