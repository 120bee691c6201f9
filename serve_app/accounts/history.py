"""History of an organization: pages of bounded streams, and counts by day."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import date, timedelta
from typing import Final, TypeAlias, cast

from redis.asyncio import Redis

from serve_app.accounts.windows import day_number

ENTRIES: Final = 100_000
"""Approximate length of a ledger or an audit log. The scripts that add entries trim to the same number."""
DAYS: Final = 400
"""Days for which the counting scripts keep counts."""

Row: TypeAlias = tuple[str, dict[str, str]]
"""Id (milliseconds since 1970, a dash and a number) and fields of a stream's entry."""


async def page_stream(redis: Redis, stream: str, limit: int, before: str | None) -> tuple[list[Row], str | None]:
    """Returns up to `limit` entries older than `before`, newest first, and the last one's id if more follow."""
    rows = await cast(
        Awaitable[list[Row]], redis.xrevrange(stream, max=f"({before}" if before else "+", count=limit + 1)
    )
    return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None


async def counts_by_day(redis: Redis, counts: str, since: date, until: date) -> dict[date, dict[str, str]]:
    """Returns the counts from `since` to `until`, both included, of days that have any."""
    days = [since + timedelta(days=n) for n in range((until - since).days + 1)]
    pipe = redis.pipeline(transaction=False)
    for day in days:
        pipe.hgetall(f"{counts}:{day_number(day)}")
    hashes: list[dict[str, str]] = await pipe.execute() if days else []
    return {day: fields for day, fields in zip(days, hashes, strict=True) if fields}
