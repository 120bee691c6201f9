"""Redis' own time, as well as this process can know it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, cast

from redis.asyncio import Redis

_READ_EVERY_S: Final = 10.0
_SLOW_S: Final = 0.25
"""A reading that took longer says when Redis answered no better than to this."""


class RedisClock:
    """Reads `TIME` now and then, and counts on from there: a script can be told until when it is wanted.

    What this process takes for the time is ahead of Redis' own by no more than a reading took, and never behind it: but
    for the first reading, if that was slow. Then it is behind by that, until one is fast.
    """

    def __init__(self, redis: Redis, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._monotonic = monotonic
        self._ahead_s: float | None = None
        self._read_at = float("-inf")

    async def now(self) -> float:
        """Epoch seconds of the server. Raises RedisError when it has to be read and can't be."""
        if self._ahead_s is None or self._monotonic() - self._read_at > _READ_EVERY_S:
            await self._read()
        assert self._ahead_s is not None
        return self._monotonic() + self._ahead_s

    def forget(self) -> None:
        """Has the time read again: another server may answer by now, after a failover."""
        self._ahead_s = None

    async def _read(self) -> None:
        asked = self._monotonic()
        seconds, micros = await cast(Awaitable[tuple[int, int]], self._redis.time())
        answered, server = self._monotonic(), int(seconds) + int(micros) / 1e6
        if answered - asked < _SLOW_S:
            self._ahead_s, self._read_at = server - asked, answered
        elif self._ahead_s is None:
            self._ahead_s = server - answered
