"""Limiter of attempts: failed sign-ins, registrations of OAuth clients.

| key | kind | holds |
|---|---|---|
| `gen:tried:{action}` | string | attempts; expires `WINDOW_S` after the first, or a day after the last with delays |
| `gen:wait:{action}` | string | present until the next attempt may be made |
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from redis.asyncio import Redis

WINDOW_S: Final = 900
MAX_WAIT_S: Final = 900
"""Longest wait between two attempts that `count_and_delay` counts."""
_COUNT_LIFE_S: Final = 24 * 3600
"""Life of a count after the last attempt: longer than the wait, which would start again from 1 s otherwise."""
_DELAY: Final = Path(__file__).with_name("delay.lua").read_text()


class TooManyAttempts(Exception):
    def __init__(self, retry_s: int) -> None:
        super().__init__(f"tried too often; try again in {retry_s} s")
        self.retry_s = retry_s


class AttemptLimiter:
    """Counts attempts before their outcome is known, so that concurrent ones don't exceed a limit."""

    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._delay = redis.register_script(_DELAY)

    async def count(self, action: str, limit: int) -> None:
        """Counts an attempt. Raises TooManyAttempts if there were more than `limit` in `WINDOW_S`."""
        key = self._key(action)
        transaction = self._redis.pipeline(transaction=True)
        transaction.set(key, 0, ex=WINDOW_S, nx=True)
        transaction.incr(key)
        transaction.ttl(key)
        _, count, ttl_s = await transaction.execute()
        if count > limit:
            raise TooManyAttempts(max(ttl_s, 1))

    async def count_and_delay(self, action: str, free_attempts: int) -> None:
        """Counts an attempt. Each one after `free_attempts` doubles the wait for the next. Raises TooManyAttempts."""
        wait_s = await self._delay(
            keys=[self._key(action), self._wait_key(action)], args=[free_attempts, MAX_WAIT_S, _COUNT_LIFE_S]
        )
        if wait_s:
            raise TooManyAttempts(wait_s)

    async def refund(self, action: str) -> None:
        """Takes one counted attempt off the count."""
        key = self._key(action)
        transaction = self._redis.pipeline(transaction=True)
        transaction.set(key, 1, ex=WINDOW_S, nx=True)
        transaction.decr(key)
        await transaction.execute()

    async def reset(self, action: str) -> None:
        await self._redis.delete(self._key(action), self._wait_key(action))

    def _key(self, action: str) -> str:
        return f"{self._prefix}tried:{action}"

    def _wait_key(self, action: str) -> str:
        return f"{self._prefix}wait:{action}"
