"""Journals: what happened in an organization, append-only, read newest first.

The newest entries are a stream in Redis, `gen:{kind}:{organization}`; those before are in segments. Entries move from
the one to the other while pages are read, and no page skips or doubles one: the stream is read before the index, and
what is in no stream any more is in the index by then.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, cast

from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.accounts.segments import Row, Segments


class Journal:
    def __init__(
        self, redis: Redis, prefix: str, kind: Literal["ledger", "audit"], objects: ObjectStore | None = None
    ) -> None:
        """Without `objects` pages that reach back to a segment raise ArchiveOutOfReach."""
        self._redis = redis
        self._prefix = prefix
        self.kind = kind
        self.segments = Segments(redis, prefix, kind, objects)

    def stream(self, organization: str) -> str:
        return f"{self._prefix}{self.kind}:{organization}"

    async def page(self, organization: str, limit: int, before: str | None) -> tuple[list[Row], str | None]:
        """Up to `limit` entries, newest first, older than the entry `before`; and the last one's id if more follow."""
        rows = await cast(
            Awaitable[list[Row]],
            self._redis.xrevrange(self.stream(organization), max=f"({before}" if before else "+", count=limit + 1),
        )
        if len(rows) <= limit:
            oldest = rows[-1][0] if rows else before
            rows = rows + await self.segments.before(organization, limit + 1 - len(rows), oldest)
        return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None
