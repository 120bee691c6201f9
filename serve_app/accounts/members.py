"""Members: people with a password, invitations, and revocation when a membership ends.

| key | kind | holds |
|---|---|---|
| `gen:person:{name}` | hash | `password` (argon2id, as PHC string), `created` |
| `gen:invitation:{sha256}` | hash | `organization role by created`; expires after `INVITATION_LIFE_S` |
| `gen:invitations:{organization}` | set | sha256 of its invitations |

Failed sign-ins are limited per name and address, and per address (`attempt_limiter.py`).
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
from serve_app.accounts.oauth import AuthorizationStore
from serve_app.accounts.roles import Role
from serve_app.accounts.sessions import SessionStore, SubjectType

FREE_FAILURES: Final = 10
"""Failed sign-ins of a name from one address before there is a wait, even for the right password. Other addresses are
not affected. Unknown addresses count as one."""
MAX_SIGN_INS_PER_ADDRESS: Final = 50
MIN_PASSWORD_CHARS: Final = 10
MAX_PASSWORD_CHARS: Final = 200
_MAX_HASHES: Final = 2
"""Maximum of concurrent hashes: each takes 64 MiB, and a CPU for a tenth of a second."""


class PersonStore:
    def __init__(self, redis: Redis, prefix: str = "gen:", hasher: PasswordHasher | None = None) -> None:
        """`hasher` has the costs of RFC 9106 by default."""
        self._redis = redis
        self._prefix = prefix
        self._hasher = hasher or PasswordHasher()
        self._limiter = AttemptLimiter(redis, prefix)
        self._hash_slots = asyncio.Semaphore(_MAX_HASHES)
        self._unknown_persons_hash: str | None = None

    async def create_user(self, name: str, password: str) -> bool:
        """Returns False if the name is taken."""
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
        """Returns whether the password is right. Raises TooManyAttempts.

        `address` is the client's, empty if unknown. An unknown name takes as long as a known one.
        """
        sign_in = f"sign in:{fold_name(name)} from {address}"
        if address:
            await self._limiter.count(f"sign in from:{address}", MAX_SIGN_INS_PER_ADDRESS)
        await self._limiter.count_and_delay(sign_in, FREE_FAILURES)
        stored_hash = await cast(Awaitable[str | None], self._redis.hget(self._key(name), "password"))
        is_right = await self._matches(stored_hash or await self._dummy_hash(), password) and stored_hash is not None
        if is_right:
            await self._limiter.reset(sign_in)
            if address:  # not reset: an attacker could do so with an account of their own
                await self._limiter.refund(f"sign in from:{address}")
        return is_right

    async def forget(self, name: str) -> bool:
        """Returns False if the name is unknown."""
        return bool(await self._redis.delete(self._key(name)))

    async def _hash(self, password: str) -> str:
        async with self._hash_slots:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def _matches(self, stored_hash: str, password: str) -> bool:
        async with self._hash_slots:
            try:
                return await asyncio.to_thread(self._hasher.verify, stored_hash, password)
            except (VerificationError, InvalidHashError):
                return False

    async def _dummy_hash(self) -> str:
        if self._unknown_persons_hash is None:
            self._unknown_persons_hash = await self._hash("unknown")
        return self._unknown_persons_hash

    def _key(self, name: str) -> str:
        return f"{self._prefix}person:{fold_name(name)}"


INVITATION_LIFE_S: Final = 7 * 24 * 3600
MAX_INVITATIONS: Final = 100
"""Maximum of an organization's invitations in `attempt_limiter.WINDOW_S`."""


@dataclass(frozen=True, slots=True)
class PendingInvitation:
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

    async def create(self, organization: str, role: Role, by: str) -> str:
        """Returns the secret of a new invitation. Raises TooManyAttempts."""
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

    async def find(self, secret: str) -> PendingInvitation | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(secret)))
        return _invitation_from_record(raw) if raw else None

    async def take(self, secret: str) -> PendingInvitation | None:
        """Removes and returns the invitation. Only the first call gets it."""
        transaction = self._redis.pipeline(transaction=True)
        transaction.hgetall(self._key(secret))
        transaction.delete(self._key(secret))
        raw, _ = await transaction.execute()
        return _invitation_from_record(raw) if raw else None

    async def withdraw(self, organization: str, by: str) -> None:
        """Deletes the invitations that a former member or key created, by which they could return."""
        for digest in await cast(Awaitable[set[str]], self._redis.smembers(self._index_key(organization))):
            key = f"{self._prefix}invitation:{digest}"
            author = await cast(Awaitable[str | None], self._redis.hget(key, "by")) or ""
            # Callers with a token have their issuer or OAuth client in parentheses behind their name.
            author, by = fold_name(author), fold_name(by)
            if author == by or author.startswith(f"{by} ("):
                await self._redis.delete(key)

    def _index_key(self, organization: str) -> str:
        return f"{self._prefix}invitations:{organization}"

    def _key(self, secret: str) -> str:
        return f"{self._prefix}invitation:{hash_secret(secret)}"


def _invitation_from_record(raw: Mapping[str, str]) -> PendingInvitation:
    return PendingInvitation(raw["organization"], Role(raw["role"]), raw["by"], float(raw["created"]))


class MembershipRevocation:
    def __init__(
        self, sessions: SessionStore, authorizations: AuthorizationStore, invitations: InvitationStore
    ) -> None:
        self._sessions = sessions
        self._authorizations = authorizations
        self._invitations = invitations

    async def member(self, person: str, organization: str, actor: str) -> None:
        """Ends the person's invitations, OAuth grants and sessions in the organization."""
        await self._invitations.withdraw(organization, person)
        await self._authorizations.end_for_subject(SubjectType.PERSON, person, organization, actor)
        await self._sessions.end_all(SubjectType.PERSON, person, organization)

    async def key(self, key_id: str, organization: str) -> None:
        await self._invitations.withdraw(organization, key_id)
