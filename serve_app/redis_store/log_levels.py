"""Levels of logging that operators set on a running service.

| key | kind | holds |
|---|---|---|
| `gen:log-levels` | hash | by module, the least that it logs, in place of what the settings say |

Every process of the service looks for itself, every few seconds; models are told with their jobs.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, cast

from redis.asyncio import Redis

from deployments.telemetry import logs
from deployments.telemetry.logs import Levels
from serve_app.loops import rest

_LOOK_EVERY_S: Final = 2.0


class LogLevels:
    def __init__(self, redis: Redis, prefix: str, configured: Levels | None = None) -> None:
        """`redis` must decode responses. `configured` is what the settings say."""
        self._redis = redis
        self._key = f"{prefix}log-levels"
        self._configured = configured or {}
        self._seen: dict[str, str] = {}

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What was read last, as jobs carry it."""
        return tuple(sorted(self._seen.items()))

    async def read(self) -> dict[str, str]:
        return await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key))

    async def set(self, module: str, level: str | None) -> None:
        """None: as the settings say. Raises ValueError for a module or a level that is none."""
        logs.checked_level(module, level or logs.LEVELS[0])
        if level is None:
            await cast(Awaitable[int], self._redis.hdel(self._key, module))
        else:
            await cast(Awaitable[int], self._redis.hset(self._key, module, level))

    async def follow(self) -> None:
        """Has this process log as was asked for last."""
        while True:
            found = await self.read()
            if found != self._seen:
                logs.set_levels({**self._configured, **found})
                self._seen = found
            await rest(_LOOK_EVERY_S)
