"""The audit log, and the bounded streams of an organization's history.

| key | kind | holds |
|---|---|---|
| `gen:audit:{organization}` | stream | `actor action subject`, and the values that were set |

An entry is written in the same transaction as its change: neither is without the other. The last `ENTRIES` are kept.

Entries name keys by id. The name of a key is joined at reading from its record (`accounts/keys.py`), so it is shown as
long as the key exists, and the deletion of a project's data, which renames its keys, has nothing to do here. Entries of
0.2 hold names: these are not shown, and leave the store with their entry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

CREATE_KEY: Final = "create key"
ENTRIES: Final = 100_000
"""Approximate length of a ledger or an audit log. The scripts that add entries trim to the same number."""
DAYS: Final = 400
"""Days for which the counting scripts keep counts."""

Row: TypeAlias = tuple[str, dict[str, str]]
"""An id, milliseconds since 1970, a dash and a number; and fields."""


async def page(redis: Redis, stream: str, limit: int, before: str | None) -> tuple[list[Row], str | None]:
    """Returns up to `limit` entries older than `before`, newest first, and the last one's id if more follow."""
    rows = await cast(
        Awaitable[list[Row]], redis.xrevrange(stream, max=f"({before}" if before else "+", count=limit + 1)
    )
    return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None


def day_key(counts: str, day: date) -> str:
    return f"{counts}:{day_number(day)}"


async def counts_by_day(redis: Redis, counts: str, since: date, until: date) -> dict[date, dict[str, str]]:
    """Returns the counts from `since` to `until`, both included, of days that have any."""
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
    """Returns the first day of each window, and that of the next one."""
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
    """Returns the beginning of the day."""
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
        """Returns up to `limit` changes older than `before`, newest first, and the last one's id if more follow."""
        rows, following = await page(self._redis, self.stream(organization), limit, before)
        names = await self._key_names([fields["subject"] for _, fields in rows if fields["action"] == CREATE_KEY])
        return [_change(entry_id, dict(fields), names) for entry_id, fields in rows], following

    async def _key_names(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Reads the names of those keys that still exist."""
        digests = await self._redis.hmget(f"{self._prefix}keys", list(ids)) if ids else []
        pipe = self._redis.pipeline(transaction=False)
        for digest in digests:
            pipe.hget(f"{self._prefix}key:{digest}", "name")
        return {key_id: name for key_id, name in zip(ids, await pipe.execute(), strict=True) if name}


def _change(entry_id: str, fields: dict[str, str], key_names: Mapping[str, str]) -> Change:
    at = int(entry_id.partition("-")[0]) / 1000
    actor, action, subject = (fields.pop(name) for name in ("actor", "action", "subject"))
    if action == CREATE_KEY:
        fields.pop("name", None)  # written by 0.2; goes after 0.3
        if subject in key_names:
            fields["name"] = key_names[subject]
    return Change(entry_id, at, actor, action, subject, fields)


_SCRIPT = (Path(__file__).parent / "create.lua").read_text()


class IndexFull(Exception):
    """The index has its maximum of records."""


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
        """Creates the record; `note` is actor, action and subject. Returns False, and changes nothing, if the record
        exists. Raises IndexFull if `most` are in the index."""
        flat = [part for pair in fields.items() for part in pair]
        code = await self._script(keys=[record], args=[record, index, member, audit, *note, most or 0, *flat])
        if code < 0:
            raise IndexFull
        return code == 1
