"""Invitations: a link that makes whoever opens it a member.

| key | kind | holds |
|---|---|---|
| `gen:invitation:{sha256}` | hash | `organization role by created`; goes when it is accepted, or after `LIFE_S` |
| `gen:invitations:{organization}` | set | sha256 of its invitations; goes `LIFE_S` after the last |

The secret is in the link alone. Accepting takes the invitation away in the same step, so that it serves one person.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.asyncio import Redis

from serve_app.accounts.keys import digest_of
from serve_app.accounts.roles import Role
from serve_app.accounts.throttle import Throttle

LIFE_S: Final = 7 * 24 * 3600
MOST_WRITTEN: Final = 100
"""Of an organization, in `throttle.WINDOW_S`."""


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
        self._throttle = Throttle(redis, prefix)

    async def write(self, organization: str, role: Role, by: str) -> str:
        """Its secret. Raises TooOften."""
        await self._throttle.count(f"invite to:{organization}", MOST_WRITTEN)
        secret = secrets.token_urlsafe(24)
        fields: dict[Any, Any] = {
            "organization": organization,
            "role": role.value,
            "by": by,
            "created": time.time(),
        }
        transaction = self._redis.pipeline(transaction=True)
        transaction.hset(self._key(secret), mapping=fields)
        transaction.expire(self._key(secret), LIFE_S)
        transaction.sadd(self._of(organization), digest_of(secret))
        transaction.expire(self._of(organization), LIFE_S)
        await transaction.execute()
        return secret

    async def find(self, secret: str) -> Invitation | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(secret)))
        return _invitation_of(raw) if raw else None

    async def take(self, secret: str) -> Invitation | None:
        """The invitation, which is gone then; None for everyone but the first."""
        transaction = self._redis.pipeline(transaction=True)
        transaction.hgetall(self._key(secret))
        transaction.delete(self._key(secret))
        raw, _ = await transaction.execute()
        return _invitation_of(raw) if raw else None

    async def withdraw(self, organization: str, by: str) -> None:
        """All that somebody wrote who may not any more: who left would come back by them."""
        for digest in await cast(Awaitable[set[str]], self._redis.smembers(self._of(organization))):
            key = f"{self._prefix}invitation:{digest}"
            wrote = await cast(Awaitable[str | None], self._redis.hget(key, "by")) or ""
            # A caller with a token is named with its issuer, or with the program that acts for them, behind the name.
            if wrote == by or wrote.startswith(f"{by} ("):
                await self._redis.delete(key)

    def _of(self, organization: str) -> str:
        return f"{self._prefix}invitations:{organization}"

    def _key(self, secret: str) -> str:
        return f"{self._prefix}invitation:{digest_of(secret)}"


def _invitation_of(raw: Mapping[str, str]) -> Invitation:
    return Invitation(raw["organization"], Role(raw["role"]), raw["by"], float(raw["created"]))
