"""A limiter of attempts: failed sign-ins, registrations of OAuth clients.

| key | kind | holds |
|---|---|---|
| `gen:tried:{what}` | string | how often it was tried lately; goes after `WINDOW_S` |
| `gen:wait:{what}` | string | present until the next attempt may be made |
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from redis.asyncio import Redis

WINDOW_S: Final = 900
LONGEST_WAIT_S: Final = 900
"""The longest wait between two attempts that `count_and_delay` counts."""
_COUNT_LIFE_S: Final = 24 * 3600
"""Life of a count after the last attempt: longer than the wait, which would begin anew otherwise."""
_DELAY: Final = Path(__file__).with_name("delay.lua").read_text()


class TooOften(Exception):
    def __init__(self, retry_s: int) -> None:
        super().__init__(f"tried too often; try again in {retry_s} s")
        self.retry_s = retry_s


class AttemptLimiter:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._delay = redis.register_script(_DELAY)

    async def count(self, what: str, most: int) -> None:
        """Counts before it is known what comes of it: of many at once no more may be tried. Raises TooOften."""
        key = self._key(what)
        transaction = self._redis.pipeline(transaction=True)
        transaction.set(key, 0, ex=WINDOW_S, nx=True)
        transaction.incr(key)
        transaction.ttl(key)
        _, count, ttl_s = await transaction.execute()
        if count > most:
            raise TooOften(max(ttl_s, 1))

    async def count_and_delay(self, what: str, free: int) -> None:
        """Counts an attempt, before it is known what comes of it. After `free` each doubles the wait for the next.

        Raises TooOften.
        """
        wait_s = await self._delay(
            keys=[self._key(what), self._wait_key(what)], args=[free, LONGEST_WAIT_S, _COUNT_LIFE_S]
        )
        if wait_s:
            raise TooOften(wait_s)

    async def take_back(self, what: str) -> None:
        """One that was counted, and need not have been."""
        key = self._key(what)
        transaction = self._redis.pipeline(transaction=True)
        transaction.set(key, 1, ex=WINDOW_S, nx=True)
        transaction.decr(key)
        await transaction.execute()

    async def forgive(self, *whats: str) -> None:
        await self._redis.delete(*(key for what in whats for key in (self._key(what), self._wait_key(what))))

    def _key(self, what: str) -> str:
        return f"{self._prefix}tried:{what}"

    def _wait_key(self, what: str) -> str:
        return f"{self._prefix}wait:{what}"
