"""Members: people with a password, invitations, and revocation when a membership ends.

| key | kind | holds |
|---|---|---|
| `gen:person:{name}` | hash | `password` (argon2id, as PHC string), `created` |

How many sign-ins failed lately is counted by name and address together, and by address (`attempt_limiter.py`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from redis.asyncio import Redis

from serve_app.accounts.attempt_limiter import AttemptLimiter
from serve_app.accounts.keys import hash_secret
from serve_app.accounts.names import fold_name
from serve_app.accounts.oauth import Authorizations
from serve_app.accounts.roles import Role
from serve_app.accounts.sessions import Kind, SessionStore

FREE_FAILURES: Final = 10
"""Failed sign-ins as one person from one address without a wait. Then the right password has to wait there, too; from
other addresses the person signs in as before. Where addresses are unknown, all count as one."""
MOST_FROM_AN_ADDRESS: Final = 50
SHORTEST_PASSWORD: Final = 10
LONGEST_PASSWORD: Final = 200
"""Characters of a password."""
_AT_A_TIME: Final = 2
"""Hashes: each takes 64 MiB and a processor for a tenth of a second."""


class People:
    def __init__(self, redis: Redis, prefix: str = "gen:", hasher: PasswordHasher | None = None) -> None:
        """`hasher` has argon2-cffi's own costs, which are those of RFC 9106, unless told."""
        self._redis = redis
        self._prefix = prefix
        self._hasher = hasher or PasswordHasher()
        self._limiter = AttemptLimiter(redis, prefix)
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._nobody: str | None = None

    async def enrol(self, name: str, password: str) -> bool:
        """False when there is someone of that name, whose password stays."""
        insert = self._redis.hsetnx(self._key(name), "password", await self._hash(password))
        if not await cast(Awaitable[int], insert):
            return False
        await cast(Awaitable[int], self._redis.hset(self._key(name), "created", str(time.time())))
        return True

    async def set_password(self, name: str, password: str) -> None:
        await cast(Awaitable[int], self._redis.hset(self._key(name), "password", await self._hash(password)))

    async def exists(self, name: str) -> bool:
        return bool(await self._redis.exists(self._key(name)))

    async def verify(self, name: str, password: str, address: str) -> bool:
        """Whether that is their password. Raises TooOften, before anything is compared.

        `address` is where it comes from; empty where that is not known. Takes as long for a name that nobody has.
        """
        name = fold_name(name)
        here = f"sign in:{name} from {address}"
        if address:
            await self._limiter.count(f"sign in from:{address}", MOST_FROM_AN_ADDRESS)
        await self._limiter.count_and_delay(here, FREE_FAILURES)
        stored_hash = await cast(Awaitable[str | None], self._redis.hget(self._key(name), "password"))
        right = await self._matches(stored_hash or await self._dummy_hash(), password) and stored_hash is not None
        if right:
            await self._limiter.forgive(here)
            if address:  # which an office shares; all of it back would be for whoever guesses beside their own account
                await self._limiter.take_back(f"sign in from:{address}")
        return right

    async def forget(self, name: str) -> bool:
        """False when there was nobody of that name."""
        return bool(await self._redis.delete(self._key(name)))

    async def _hash(self, password: str) -> str:
        async with self._turns:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def _matches(self, stored_hash: str, password: str) -> bool:
        async with self._turns:
            try:
                return await asyncio.to_thread(self._hasher.verify, stored_hash, password)
            except (VerificationError, InvalidHashError):
                return False

    async def _dummy_hash(self) -> str:
        if self._nobody is None:
            self._nobody = await self._hash("nobody's")
        return self._nobody

    def _key(self, name: str) -> str:
        return f"{self._prefix}person:{fold_name(name)}"


INVITATION_LIFE_S: Final = 7 * 24 * 3600
MAX_INVITATIONS: Final = 100
"""Of an organization, in `attempt_limiter.WINDOW_S`."""


@dataclass(frozen=True, slots=True)
class Invitation:
    organization: str
    role: Role
    by: str
    created: float
    """Epoch seconds."""


class InvitationStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._limiter = AttemptLimiter(redis, prefix)

    async def write(self, organization: str, role: Role, by: str) -> str:
        """Its secret. Raises TooOften."""
        await self._limiter.count(f"invite to:{organization}", MAX_INVITATIONS)
        secret = secrets.token_urlsafe(24)
        fields: dict[Any, Any] = {
            "organization": organization,
            "role": role.value,
            "by": by,
            "created": time.time(),
        }
        transaction = self._redis.pipeline(transaction=True)
        transaction.hset(self._key(secret), mapping=fields)
        transaction.expire(self._key(secret), INVITATION_LIFE_S)
        transaction.sadd(self._index_key(organization), hash_secret(secret))
        transaction.expire(self._index_key(organization), INVITATION_LIFE_S)
        await transaction.execute()
        return secret

    async def find(self, secret: str) -> Invitation | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(secret)))
        return _invitation_from_record(raw) if raw else None

    async def take(self, secret: str) -> Invitation | None:
        """The invitation, which is gone then; None for everyone but the first."""
        transaction = self._redis.pipeline(transaction=True)
        transaction.hgetall(self._key(secret))
        transaction.delete(self._key(secret))
        raw, _ = await transaction.execute()
        return _invitation_from_record(raw) if raw else None

    async def withdraw(self, organization: str, by: str) -> None:
        """All that somebody wrote who may not any more: who left would come back by them."""
        for digest in await cast(Awaitable[set[str]], self._redis.smembers(self._index_key(organization))):
            key = f"{self._prefix}invitation:{digest}"
            author = await cast(Awaitable[str | None], self._redis.hget(key, "by")) or ""
            # A caller with a token is named with its issuer, or with the OAuth client of theirs, behind the name.
            author, by = fold_name(author), fold_name(by)
            if author == by or author.startswith(f"{by} ("):
                await self._redis.delete(key)

    def _index_key(self, organization: str) -> str:
        return f"{self._prefix}invitations:{organization}"

    def _key(self, secret: str) -> str:
        return f"{self._prefix}invitation:{hash_secret(secret)}"


def _invitation_from_record(raw: Mapping[str, str]) -> Invitation:
    return Invitation(raw["organization"], Role(raw["role"]), raw["by"], float(raw["created"]))


class MembershipRevocation:
    def __init__(self, sessions: SessionStore, authorizations: Authorizations, invitations: InvitationStore) -> None:
        self._sessions = sessions
        self._authorizations = authorizations
        self._invitations = invitations

    async def member(self, person: str, organization: str, actor: str) -> None:
        """Ends what the person may do in the organization, and their sessions there."""
        await self._invitations.withdraw(organization, person)
        await self._authorizations.end_for_subject(Kind.PERSON, person, organization, actor)
        await self._sessions.end_all(Kind.PERSON, person, organization)

    async def key(self, key_id: str, organization: str) -> None:
        await self._invitations.withdraw(organization, key_id)
