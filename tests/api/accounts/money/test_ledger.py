"""Grants, the ledger, and the report of usage."""

from __future__ import annotations

from datetime import date, timedelta

from redis.asyncio import Redis
from support.ledger import assert_books_balance, complete, submit

from serve_app.accounts.credits import MAX_DAYS, CreditStore, Usage
from serve_app.accounts.history import DAYS
from serve_app.accounts.windows import day_number
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


async def test_ledger_has_pages_newest_first(redis: Redis, prefix: str) -> None:
    credits = CreditStore(redis, prefix)
    for n in (1, 2, 3):
        await credits.grant("acme", f"order-{n}", n, by="test", note="thanks")
    first, before = await credits.ledger("acme", 2)
    await credits.grant("acme", "later", 100, by="test")
    second, last = await credits.ledger("acme", 2, before)
    assert ([entry.amount for entry in (*first, *second)], last) == ([3, 2, 1], None)
    assert second[-1].about == {"grant": "order-1", "by": "test", "note": "thanks"}
    assert await credits.ledger("nobody", 2) == ([], None)


async def usage_day(store: TaskStore) -> date:
    """Returns the latest day that has usage."""
    start = f"{store.prefix}usage:acme:"
    days = [int(name.removeprefix(start)) async for name in store.redis.scan_iter(f"{start}*", count=10_000)]
    return date(1970, 1, 1) + timedelta(days=max(days))


async def test_usage_is_counted_by_day_project_and_endpoint(store: TaskStore, credits: CreditStore) -> None:
    for project, endpoint, price, cost in (
        ("p", "gen-a", 500, 400),
        ("p", "gen-a", 300, None),
        ("p", "gen-b", 50, 50),
        ("q", "gen-a", 7, 7),
        ("q", "gen-free", 0, None),
    ):
        await submit(store, price, project=project, endpoint=endpoint)
        await complete(store, cost=cost)
    await submit(store, 900, project="q", endpoint="gen-b")
    await complete(store, Status.ERROR)
    await submit(store, 1, project="q", endpoint="gen-b")

    # Move the usage to the day before.
    day = await usage_day(store)
    yesterday = day - timedelta(days=1)
    base = f"{store.prefix}usage:acme:"
    await store.redis.rename(f"{base}{day_number(day)}", f"{base}{day_number(yesterday)}")
    await complete(store, cost=1)
    day = await usage_day(store)

    before = [
        Usage(yesterday, "p", "gen-a", tasks=2, cost=700),
        Usage(yesterday, "p", "gen-b", tasks=1, cost=50),
        Usage(yesterday, "q", "gen-a", tasks=1, cost=7),
        Usage(yesterday, "q", "gen-free", tasks=1, cost=0),
    ]
    today = [Usage(day, "q", "gen-b", tasks=1, cost=1)]
    assert await credits.usage("acme", yesterday, day) == before + today
    assert await credits.usage("acme", yesterday, yesterday) == before
    assert await credits.usage("acme", day, day) == today
    assert await credits.usage("acme", day, yesterday) == []
    assert await credits.usage("other", yesterday, day) == []
    assert await credits.usage("acme", day - timedelta(days=MAX_DAYS - 1), day) == before + today
    assert await credits.usage("acme", day - timedelta(days=MAX_DAYS), day) == before
    assert (await assert_books_balance(credits)).spent == sum(row.cost for row in before + today)


async def test_days_of_usage_expire(credits: CreditStore, store: TaskStore) -> None:
    await submit(store, 3)
    await complete(store, cost=2)
    [usage] = [key async for key in store.redis.scan_iter(f"{store.prefix}usage:acme:*")]
    assert 0 < await store.redis.ttl(usage) <= DAYS * 86400
