"""Moves what is old from Redis to the object store, so that memory does not grow with the tasks that were ever paid.

| key | kind | holds |
|---|---|---|
| `gen:archived:{organization}` | hash | `opening`: the balance before the oldest ledger entry that Redis has |
| | | `usage generations`: the first day, ISO 8601, whose counts are not archived |

A segment is stored first; then one script puts it in the index and takes its rows out of Redis, if they still are what
Redis begins with. Killed anywhere in between, it leaves an object that is not in the index, and the next run makes it
again. Any number of archivers may run at once.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, cast

from obstore.exceptions import BaseError
from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.daily_counts import DailyCounts, day_of
from serve_app.accounts.journal import Journal
from serve_app.accounts.segments import Row
from serve_app.accounts.windows import windows_of
from serve_app.loops import rest

logger = logging.getLogger(__name__)

_EVERY_S: Final = 60.0
_FIRST_DAY: Final = date(2025, 1, 1)
"""No service counted anything before it."""
_ENTRIES = (Path(__file__).parent / "archive.lua").read_text()
_DAYS = (Path(__file__).parent / "archive_days.lua").read_text()


class Archive:
    def __init__(self, redis: Redis, prefix: str, objects: ObjectStore, entries: int, usage_days: int) -> None:
        """Redis keeps from `entries` to twice as many of each journal, and at least `usage_days` days of counts."""
        self._redis = redis
        self._prefix = prefix
        self._entries = entries
        self._usage_days = usage_days
        self._ledger, self._audit = (Journal(redis, prefix, kind, objects) for kind in ("ledger", "audit"))
        self._counts = [DailyCounts(redis, prefix, kind, objects) for kind in ("usage", "generations")]
        self._move_entries = redis.register_script(_ENTRIES)
        self._move_days = redis.register_script(_DAYS)

    async def run(self) -> None:
        """Archives what is due, again and again."""
        while True:
            try:
                if made := await self.archive_due():
                    logger.info("archived %d segments", made)
            except (BaseError, OSError) as problem:
                logger.warning("nothing was archived, the object store is out of reach: %s", type(problem).__name__)
            await rest(_EVERY_S)

    async def archive_due(self) -> int:
        """Archives all that is old enough, of all organizations. Returns how many segments that made."""
        organizations = await cast(Awaitable[set[str]], self._redis.smembers(f"{self._prefix}organizations"))
        seconds, _ = await cast(Awaitable[tuple[int, int]], self._redis.time())
        kept_since = datetime.fromtimestamp(int(seconds), UTC).date() - timedelta(days=self._usage_days)
        made = 0
        for organization in sorted(organizations | {DEFAULT_ORGANIZATION}):
            for journal in (self._ledger, self._audit):
                while await self._archive_entries(journal, organization):
                    made += 1
            for counts in self._counts:
                made += await self._archive_months(counts, organization, kept_since)
            await rest(0)
        return made

    async def _archive_entries(self, journal: Journal, organization: str) -> bool:
        """Makes one segment, if there is enough for it and nobody else makes it."""
        stream = journal.stream(organization)
        if await self._redis.xlen(stream) < 2 * self._entries:
            return False
        rows = await cast(Awaitable[list[Row]], self._redis.xrange(stream, count=self._entries))
        segment = await journal.segments.write(organization, rows)
        archived = self._archived(organization) if journal is self._ledger else ""
        index = journal.segments.index(organization)
        moved = await self._move_entries(
            keys=[stream], args=[stream, index, archived, segment.first, segment.last, len(rows), segment.mark]
        )
        return moved == 1

    async def _archive_months(self, counts: DailyCounts, organization: str, kept_since: date) -> int:
        """Makes a segment of each month that ended before `kept_since` and has counts. Returns how many."""
        archived = self._archived(organization)
        noted = await cast(Awaitable[str | None], self._redis.hget(archived, counts.kind)) or ""
        since = date.fromisoformat(noted) if noted else _FIRST_DAY
        until = windows_of(kept_since)["month"][0]
        if until <= since:
            return 0
        index = counts.segments.index(organization)
        days = await counts.recent(organization, since, until - timedelta(days=1))
        made = 0
        for month, rows in itertools.groupby(days, key=lambda row: windows_of(day_of(row[0]))["month"]):
            held = list(rows)
            segment = await counts.segments.write(organization, held)
            following = month[1].isoformat()
            keys = [counts.key(organization, day_of(row_id)) for row_id, _ in held]
            noting = [archived, counts.kind, noted, following]
            if not await self._move_days(keys=keys, args=[*noting, index, segment.first, segment.last, segment.mark]):
                return made
            made, noted = made + 1, following
        if noted != until.isoformat():
            await self._move_days(keys=[], args=[archived, counts.kind, noted, until.isoformat()])
        return made

    def _archived(self, organization: str) -> str:
        return f"{self._prefix}archived:{organization}"
