"""What happened in an organization: entries of its ledger and audit log, and counts by UTC day, as far back as kept.

Redis keeps the latest ENTRIES of each stream and the latest DAYS of counts, so that memory does not grow with the tasks
that were ever paid. `gen-serve export` copies all of it to files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast

from redis.asyncio import Redis

ENTRIES: Final = 100_000
"""Of a ledger or an audit log, about. The scripts that add entries trim to the same number."""
DAYS: Final = 400
"""The scripts that count set counts to expire after as many."""

Row: TypeAlias = tuple[str, dict[str, str]]
"""An id, milliseconds since 1970, a dash and a number; and fields."""


async def page(redis: Redis, stream: str, limit: int, before: str | None) -> tuple[list[Row], str | None]:
    """Up to `limit` entries, newest first, older than the entry `before`; and the last one's id if more follow."""
    rows = await cast(
        Awaitable[list[Row]], redis.xrevrange(stream, max=f"({before}" if before else "+", count=limit + 1)
    )
    return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None


def day_key(counts: str, day: date) -> str:
    return f"{counts}:{day_number(day)}"


async def counts_by_day(redis: Redis, counts: str, since: date, until: date) -> dict[date, dict[str, str]]:
    """What was counted from `since` to `until`, both included; days without are left out."""
    days = [since + timedelta(days=n) for n in range((until - since).days + 1)]
    pipe = redis.pipeline(transaction=False)
    for day in days:
        pipe.hgetall(day_key(counts, day))
    found: list[dict[str, str]] = await pipe.execute() if days else []
    return {day: fields for day, fields in zip(days, found, strict=True) if fields}


Window: TypeAlias = Literal["day", "week", "month"]
WINDOWS: Final[tuple[Window, ...]] = ("day", "week", "month")

_EPOCH: Final = date(1970, 1, 1)


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - _EPOCH).days


def windows_of(day: date) -> Mapping[Window, tuple[date, date]]:
    """By window, its first day and that of the next."""
    monday = day - timedelta(days=day.weekday())
    first = day.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return MappingProxyType(
        {
            "day": (day, day + timedelta(days=1)),
            "week": (monday, monday + timedelta(days=7)),
            "month": (first, following),
        }
    )


def midnight(day: date) -> datetime:
    """Its beginning."""
    return datetime.combine(day, time(), UTC)
