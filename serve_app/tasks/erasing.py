"""How a project's tasks are erased: ended, and forgotten once their objects are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, cast

from redis.asyncio import Redis

from serve_app.redis_store.scripts import Scripts, milliseconds
from serve_app.tasks.limits import Limits
from serve_app.tasks.scripts import source

LATE_S: Final = 3600.0
"""How long after the end of a task something may still come of it; what does is swept then."""


class TaskEraser:
    def __init__(self, redis: Redis, prefix: str = "gen:", limits: Limits | None = None) -> None:
        """`redis` must decode responses."""
        self._redis = redis
        self._prefix = prefix
        self._retention = milliseconds((limits or Limits()).retention_s)
        self._scripts = Scripts(redis, prefix, source)

    async def some(self, project: str, n: int) -> list[str]:
        """Up to `n` ids of tasks of the project that are kept, or may come to be; none when there are no more."""
        for index in ("tasks", "reserved"):
            ids = await self._redis.zrange(f"{self._prefix}{index}:{project}", 0, n - 1)
            if ids:
                return cast(list[str], ids)
        return []

    async def end(self, project: str, ids: Sequence[str]) -> None:
        """Stops the work on these tasks of the project, gives back what was held for them, and drops their webhooks."""
        await self._run("erase", project, self._retention, *ids)

    async def forget(self, project: str, ids: Sequence[str]) -> None:
        """Forgets tasks that have ended, and reservations."""
        await self._run("forget", project, milliseconds(LATE_S), *ids)

    async def _run(self, name: str, *args: str | int) -> None:
        await cast(Awaitable[int], self._scripts.run(name, ["", *args]))
