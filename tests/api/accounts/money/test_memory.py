"""Redis holds no more for tasks that were paid and swept than for the last of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.books import ORGANIZATION, assert_books_balance, priced_task
from support.tasks import ALL, LANE, make_due

from deployments.contract.objects import ObjectStore
from serve_app.accounts.archive import Archive
from serve_app.accounts.credits import Credits
from serve_app.accounts.organizations import OrganizationStore
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

ENTRIES = 200
BATCH = 100
"""Tasks at a time; two entries each."""


async def paid_and_swept(store: TaskStore, batches: int) -> None:
    for _ in range(batches):
        await asyncio.gather(*(store.submit(priced_task(3)) for _ in range(BATCH)))
        leases = await store.lease(LANE, BATCH, ALL)
        await asyncio.gather(*(store.complete(LANE, lease.id, lease.attempt, Status.READY, cost=2) for lease in leases))
        await make_due(store, "retention")
        ids = await store.sweep(limit=BATCH)
        assert len(ids) == BATCH
        assert await store.sweep(ids) == []


async def kept_for_ever(redis: Redis, prefix: str) -> dict[str, int]:
    """Bytes by key, of those that don't expire by themselves."""
    names = [str(name) async for name in redis.scan_iter(f"{prefix}*", count=1000)]
    return {
        name.removeprefix(prefix): await redis.memory_usage(name, samples=0) or 0
        for name in names
        if await redis.ttl(name) == -1
    }


@pytest.mark.slow
async def test_memory_does_not_grow_with_tasks_that_are_gone(
    store: TaskStore, redis: Redis, prefix: str, tmp_path: Path
) -> None:
    objects = ObjectStore(tmp_path.as_uri())
    archive = Archive(redis, prefix, objects, ENTRIES, usage_days=40)
    credits = Credits(redis, prefix, objects)
    assert await OrganizationStore(redis, prefix).create(ORGANIZATION, "Acme", "test")
    await credits.grant(ORGANIZATION, "first", 10**9, by="test")

    await paid_and_swept(store, 4)
    await archive.archive_due()
    before = await kept_for_ever(redis, prefix)
    await paid_and_swept(store, 20)
    grown = await kept_for_ever(redis, prefix)
    assert grown[f"ledger:{ORGANIZATION}"] > 8 * before[f"ledger:{ORGANIZATION}"], "what archiving is for"
    await archive.archive_due()
    after = await kept_for_ever(redis, prefix)

    assert set(after) == set(before)
    assert sum(after.values()) < 1.05 * sum(before.values())
    await assert_books_balance(credits)
