"""Pagination of sorted sets, newest first; and log levels set at run time."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, cast

from redis.asyncio import Redis

from deployments.telemetry import logs
from deployments.telemetry.logs import Levels
from serve_app.background import rest


async def page(
    redis: Redis, index: str, limit: int, cursor: str | None, oldest: int | None = None
) -> tuple[list[str], str | None]:
    """Up to `limit` members of `index` after the cursor, and the cursor of the next page, None on the last one.

    Scores are milliseconds; nothing older than `oldest` is there. Raises ValueError for a bad cursor.
    """
    top, after = "+inf", ""
    if cursor is not None:
        created, _, after = cursor.partition("-")
        if not (created.isascii() and created.isdigit()) or not after:
            raise ValueError("cursor")
        top = created
    rows: list[tuple[str, float]] = []
    offset = 0
    while len(rows) <= limit:
        batch = await cast(
            Awaitable[list[tuple[str, float]]],
            redis.zrange(
                index,
                cast(Any, top),
                cast(Any, "-inf" if oldest is None else oldest),
                desc=True,
                byscore=True,
                withscores=True,
                offset=offset,
                num=limit + 1,
            ),
        )
        offset += len(batch)
        # Members of one millisecond come in falling order; skip what the last page showed.
        rows += [(member, at) for member, at in batch if not (after and at == float(top) and member >= after)]
        if cursor is None or len(batch) <= limit:
            # The first page is one look: what is newer by the second would move everything along, and be shown twice.
            break
    members, more = rows[:limit], len(rows) > limit
    return [member for member, _ in members], f"{int(members[-1][1])}-{members[-1][0]}" if more else None


_LOOK_EVERY_S: Final = 2.0


class LogLevels:
    def __init__(self, redis: Redis, prefix: str, configured: Levels | None = None) -> None:
        """`redis` must decode responses. `configured` is what the settings say."""
        self._redis = redis
        self._key = f"{prefix}log-levels"
        self._configured = configured or {}
        self._levels: dict[str, str] = {}

    @property
    def levels(self) -> tuple[tuple[str, str], ...]:
        """What was read last, as jobs carry it."""
        return tuple(sorted(self._levels.items()))

    async def read(self) -> dict[str, str]:
        return await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key))

    async def set(self, module: str, level: str | None) -> None:
        """None: as the settings say. Raises ValueError for a module or a level that is none."""
        logs.check_level(module, level or logs.LEVELS[0])
        if level is None:
            await cast(Awaitable[int], self._redis.hdel(self._key, module))
        else:
            await cast(Awaitable[int], self._redis.hset(self._key, module, level))

    async def follow(self) -> None:
        """Has this process log as was asked for last."""
        while True:
            levels = await self.read()
            if levels != self._levels:
                logs.set_levels({**self._configured, **levels})
                self._levels = levels
            await rest(_LOOK_EVERY_S)
