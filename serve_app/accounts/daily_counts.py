"""Counts of an organization by UTC day.

The latest days are hashes in Redis, `gen:{kind}:{organization}:{day}`; whole months of those before are in segments,
where the id of a day is `YYYYMMDD-0`. A day that is over never changes, so it does not matter where it is read.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal

from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.accounts.segments import Row, Segments
from serve_app.accounts.windows import day_number


class DailyCounts:
    def __init__(
        self, redis: Redis, prefix: str, kind: Literal["usage", "generations"], objects: ObjectStore | None = None
    ) -> None:
        """Without `objects` days that are in a segment raise ArchiveOutOfReach."""
        self._redis = redis
        self._prefix = prefix
        self.kind = kind
        self.segments = Segments(redis, prefix, kind, objects)

    def key(self, organization: str, day: date) -> str:
        return f"{self._prefix}{self.kind}:{organization}:{day_number(day)}"

    async def read(self, organization: str, since: date, until: date) -> dict[date, dict[str, str]]:
        """What was counted from `since` to `until`, both included, by day; days without are left out."""
        if until < since:
            return {}
        recent = dict(await self.recent(organization, since, until))
        archived = dict(await self.segments.between(organization, _row_id(since), _row_id(until)))
        found = archived | recent
        return {day_of(row_id): found[row_id] for row_id in sorted(found)}

    async def recent(self, organization: str, since: date, until: date) -> list[Row]:
        """The days that Redis has, from `since` to `until`, both included."""
        days = [since + timedelta(days=n) for n in range((until - since).days + 1)]
        pipe = self._redis.pipeline(transaction=False)
        for day in days:
            pipe.hgetall(self.key(organization, day))
        found: list[dict[str, str]] = await pipe.execute()
        return [(_row_id(day), counts) for day, counts in zip(days, found, strict=True) if counts]


def day_of(row_id: str) -> date:
    return date.fromisoformat(row_id[:8])


def _row_id(day: date) -> str:
    return f"{day.isoformat().replace('-', '')}-0"
