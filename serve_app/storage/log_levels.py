"""Log levels that operators set at run time.

`gen:log-levels` is a hash of modules to levels; modules that it lacks log as configured.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, cast

from redis.asyncio import Redis

from deployments.telemetry import logs
from deployments.telemetry.logs import Levels
from serve_app.background import rest

_POLL_INTERVAL_S: Final = 2.0


class LogLevels:
    def __init__(self, redis: Redis, prefix: str, configured: Levels | None = None) -> None:
        """`redis` must decode responses. `configured` are the levels in the settings."""
        self._redis = redis
        self._key = f"{prefix}log-levels"
        self._configured = configured or {}
        self._levels: dict[str, str] = {}

    @property
    def levels(self) -> tuple[tuple[str, str], ...]:
        """Modules and levels as last read, in the form that jobs carry."""
        return tuple(sorted(self._levels.items()))

    async def read(self) -> dict[str, str]:
        return await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key))

    async def set(self, module: str, level: str | None) -> None:
        """Sets the level of a module; None restores the configured one.

        Raises ValueError for an unknown module or level.
        """
        logs.check_level(module, level or logs.LEVELS[0])
        if level is None:
            await cast(Awaitable[int], self._redis.hdel(self._key, module))
        else:
            await cast(Awaitable[int], self._redis.hset(self._key, module, level))

    async def follow(self) -> None:
        """Applies the levels to this process, again and again."""
        while True:
            levels = await self.read()
            if levels != self._levels:
                logs.set_levels({**self._configured, **levels})
                self._levels = levels
            await rest(_POLL_INTERVAL_S)
