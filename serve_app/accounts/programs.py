"""Programs that registered themselves, to ask people for access (OAuth dynamic client registration, RFC 7591).

| key | kind | holds |
|---|---|---|
| `gen:program:{id}` | string | its registration, sealed: it has the program's secret |

Anyone may register. One whom nobody gave access goes after `UNUSED_S`; others `USED_S` after the last use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, cast

from redis.asyncio import Redis

from serve_app.accounts.throttle import Throttle

UNUSED_S: Final = 24 * 3600
USED_S: Final = 90 * 24 * 3600
MOST_FROM_AN_ADDRESS: Final = 50
"""Registrations in `throttle.WINDOW_S`."""
MOST_FROM_ANYWHERE: Final = 500
"""Where addresses are not known."""
LARGEST: Final = 8 * 1024
"""Characters of a registration."""

Seal: TypeAlias = Callable[[str], str]
Unseal: TypeAlias = Callable[[str], str | None]


class Programs:
    def __init__(self, redis: Redis, prefix: str, seal: Seal, unseal: Unseal) -> None:
        self._redis = redis
        self._prefix = prefix
        self._seal, self._unseal = seal, unseal
        self._throttle = Throttle(redis, prefix)

    async def register(self, program: str, registration: str, address: str) -> None:
        """Raises TooOften."""
        await self._throttle.count(f"register from:{address}", MOST_FROM_AN_ADDRESS if address else MOST_FROM_ANYWHERE)
        await self._redis.set(self._key(program), self._seal(registration), ex=UNUSED_S)

    async def find(self, program: str) -> str | None:
        """Its registration; None as well where the key that sealed it is gone, for then it registers anew."""
        sealed = await cast(Awaitable[str | None], self._redis.get(self._key(program)))
        return None if sealed is None else self._unseal(sealed)

    async def used(self, program: str) -> None:
        await self._redis.expire(self._key(program), USED_S)

    def _key(self, program: str) -> str:
        return f"{self._prefix}program:{program}"
