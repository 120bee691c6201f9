"""Projects: whom a task belongs to, and how it is treated.

| key | kind | holds |
|---|---|---|
| `gen:project:{id}` | hash | `weight`: share of the queue against other projects, `statuses`: `full` or `basic` |
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal, cast

from redis.asyncio import Redis

_CACHE_S = 10.0
_CACHE_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class Project:
    id: str
    weight: float = 1.0
    statuses: Literal["full", "basic"] = "full"
    """`basic` reports `Reasoning` and `Generating` as `Pending`, for clients that reject strings they don't know."""


class ProjectStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._cache: dict[str, tuple[float, Project]] = {}

    async def get(self, project_id: str) -> Project:
        """A project that was never set has the defaults. A change takes effect within 10 s everywhere."""
        now = time.monotonic()
        cached = self._cache.get(project_id)
        if cached and now - cached[0] < _CACHE_S:
            return cached[1]
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}project:{project_id}"))
        statuses = "basic" if raw.get("statuses") == "basic" else "full"
        project = Project(project_id, float(raw.get("weight", 1.0)), statuses)
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[project_id] = (now, project)
        return project

    async def put(self, project: Project) -> None:
        """Raises ValueError for a weight that is not above 0."""
        if not project.weight > 0:
            raise ValueError("weight must be above 0")
        mapping: dict[Any, Any] = {"weight": project.weight, "statuses": project.statuses}
        await cast(Awaitable[int], self._redis.hset(f"{self._prefix}project:{project.id}", mapping=mapping))
        self._cache.pop(project.id, None)
