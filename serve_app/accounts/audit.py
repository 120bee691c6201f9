"""The audit log, and the bounded streams of an organization's history.

| key | kind | holds |
|---|---|---|
| `gen:audit:{organization}` | stream | `actor action subject`, and what it was changed to |

An entry is written in the same transaction as its change: neither is without the other. Entries are kept as
`history.py` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

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
    hashes: list[dict[str, str]] = await pipe.execute() if days else []
    return {day: fields for day, fields in zip(days, hashes, strict=True) if fields}


Window: TypeAlias = Literal["day", "week", "month"]
WINDOWS: Final[tuple[Window, ...]] = ("day", "week", "month")

_EPOCH: Final = date(1970, 1, 1)


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - _EPOCH).days


def compute_windows(day: date) -> Mapping[Window, tuple[date, date]]:
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


@dataclass(frozen=True, slots=True)
class Change:
    id: str
    at: float
    """Epoch seconds."""
    actor: str
    action: str
    subject: str
    details: Mapping[str, str]


class AuditLog:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix

    def stream(self, organization: str) -> str:
        return f"{self._prefix}audit:{organization}"

    def note(
        self, transaction: Pipeline, organization: str, actor: str, action: str, subject: str, **details: Any
    ) -> None:
        """Adds the entry to a transaction that makes the change. No details may be secrets."""
        entry: dict[Any, Any] = {"actor": actor, "action": action, "subject": subject}
        entry |= {name: "" if value is None else str(value) for name, value in details.items()}
        transaction.xadd(self.stream(organization), entry, maxlen=ENTRIES)

    async def read(self, organization: str, limit: int, before: str | None = None) -> tuple[list[Change], str | None]:
        """Up to `limit` changes, newest first, older than the change `before`; and the last one's id if more follow."""
        rows, following = await page(self._redis, self.stream(organization), limit, before)
        return [_change(entry_id, dict(fields)) for entry_id, fields in rows], following


def _change(entry_id: str, fields: dict[str, str]) -> Change:
    at = int(entry_id.partition("-")[0]) / 1000
    return Change(entry_id, at, fields.pop("actor"), fields.pop("action"), fields.pop("subject"), fields)


_SCRIPT = (Path(__file__).parent / "create.lua").read_text()


class IndexFull(Exception):
    """There are as many records as there may be."""


class Creation:
    def __init__(self, redis: Redis) -> None:
        self._script = redis.register_script(_SCRIPT)

    async def __call__(
        self,
        *,
        record: str,
        index: str,
        member: str,
        audit: str,
        note: tuple[str, str, str],
        fields: Mapping[str, Any],
        most: int | None = None,
    ) -> bool:
        """`note` is actor, action and subject. False when there is a record of that key, which stays as it is. Raises
        IndexFull where `most` are in the index."""
        flat = [part for pair in fields.items() for part in pair]
        code = await self._script(keys=[record], args=[record, index, member, audit, *note, most or 0, *flat])
        if code < 0:
            raise IndexFull
        return code == 1
