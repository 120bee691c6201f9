"""People: who signs in with a name and a password. What they may do, organizations say, whose members they are.

| key | kind | holds |
|---|---|---|
| `gen:person:{name}` | hash | `password` (argon2id, as PHC string), `created` |

How many sign-ins failed lately is counted by name and by address (`throttle.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Final, cast

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from redis.asyncio import Redis

from serve_app.accounts.throttle import Throttle

MOST_OF_A_NAME: Final = 10
"""Failed sign-ins from one address in `throttle.WINDOW_S`; then the right password is of no use there either."""
MOST_OF_A_NAME_ANYWHERE: Final = 100
MOST_FROM_AN_ADDRESS: Final = 50
SHORTEST: Final = 10
LONGEST: Final = 200
"""Characters of a password."""
_AT_A_TIME: Final = 2
"""Hashes: each takes 64 MiB and a processor for a tenth of a second."""


class People:
    def __init__(self, redis: Redis, prefix: str = "gen:", hasher: PasswordHasher | None = None) -> None:
        """`hasher` has argon2-cffi's own costs, which are those of RFC 9106, unless told."""
        self._redis = redis
        self._prefix = prefix
        self._hasher = hasher or PasswordHasher()
        self._throttle = Throttle(redis, prefix)
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._nobody: str | None = None

    async def enrol(self, name: str, password: str) -> bool:
        """False when there is someone of that name, whose password stays."""
        added = self._redis.hsetnx(self._key(name), "password", await self._hashed(password))
        if not await cast(Awaitable[int], added):
            return False
        await cast(Awaitable[int], self._redis.hset(self._key(name), "created", str(time.time())))
        return True

    async def set_password(self, name: str, password: str) -> None:
        await cast(Awaitable[int], self._redis.hset(self._key(name), "password", await self._hashed(password)))

    async def is_known(self, name: str) -> bool:
        return bool(await self._redis.exists(self._key(name)))

    async def verify(self, name: str, password: str, address: str) -> bool:
        """Whether that is their password. Raises TooOften, before anything is compared.

        `address` is where it comes from; empty where that is not known. Takes as long for a name that nobody has.
        """
        here, of_name = f"sign in:{name} from {address}", f"sign in:{name}"
        if address:
            await self._throttle.count(f"sign in from:{address}", MOST_FROM_AN_ADDRESS)
        await self._throttle.count(here, MOST_OF_A_NAME)
        await self._throttle.count(of_name, MOST_OF_A_NAME_ANYWHERE)
        stored = await cast(Awaitable[str | None], self._redis.hget(self._key(name), "password"))
        right = await self._matches(stored or await self._hash_of_nobody(), password) and stored is not None
        if right:
            await self._throttle.forgive(here, of_name)
            if address:  # which an office shares; all of it back would be for whoever guesses beside their own account
                await self._throttle.take_back(f"sign in from:{address}")
        return right

    async def forget(self, name: str) -> bool:
        """False when there was nobody of that name."""
        return bool(await self._redis.delete(self._key(name)))

    async def _hashed(self, password: str) -> str:
        async with self._turns:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def _matches(self, stored: str, password: str) -> bool:
        async with self._turns:
            try:
                return await asyncio.to_thread(self._hasher.verify, stored, password)
            except (VerificationError, InvalidHashError):
                return False

    async def _hash_of_nobody(self) -> str:
        if self._nobody is None:
            self._nobody = await self._hashed("nobody's")
        return self._nobody

    def _key(self, name: str) -> str:
        return f"{self._prefix}person:{name}"
