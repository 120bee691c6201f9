"""API keys: shown once, kept as a hash.

| key | kind | holds |
|---|---|---|
| `gen:key:{sha256}` | hash | `id name project hint created` of a valid key |
| `gen:keys` | hash | key id to sha256, revoked ones removed |
| `gen:keys:revoked` | set | sha256 of revoked keys |

Keys have 256 random bits, so a plain SHA-256 is as safe as a slow hash and costs nothing per request.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

DEFAULT_PROJECT = "default"
_CACHE_S = 10.0
_CACHE_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    name: str
    project: str
    hint: str
    """The first characters, enough for a person to tell keys apart."""
    created: float
    """Epoch seconds."""


class KeyStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._cache: dict[str, tuple[float, ApiKey]] = {}

    async def create(self, name: str, project: str = DEFAULT_PROJECT, secret: str | None = None) -> tuple[ApiKey, str]:
        """Makes a key, or registers the given `secret` again. Returns it with its secret, which is stored nowhere."""
        secret = secret or f"gen_{secrets.token_urlsafe(32)}"
        key = ApiKey(secrets.token_hex(6), name, project, secret[:10], time.time())
        digest = _digest(secret)
        fields: dict[Any, Any] = {
            "id": key.id,
            "name": name,
            "project": project,
            "hint": key.hint,
            "created": key.created,
        }
        pipe = self._redis.pipeline(transaction=True)
        pipe.hset(f"{self._prefix}key:{digest}", mapping=fields)
        pipe.hset(f"{self._prefix}keys", key.id, digest)
        await pipe.execute()
        return key, secret

    async def authenticate(self, secret: str) -> ApiKey | None:
        """The key, or None when it is unknown or revoked. A revocation takes effect within 10 s everywhere."""
        digest, now = _digest(secret), time.monotonic()
        cached = self._cache.get(digest)
        if cached and now - cached[0] < _CACHE_S:
            return cached[1]
        self._cache.pop(digest, None)
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}key:{digest}"))
        if not raw:
            return None
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        key = _key(raw)
        self._cache[digest] = (now, key)
        return key

    async def is_revoked(self, secret: str) -> bool:
        """Whether the key was valid once and must not be again."""
        member = self._redis.sismember(f"{self._prefix}keys:revoked", _digest(secret))
        return bool(await cast(Awaitable[int], member))

    async def list(self) -> list[ApiKey]:
        """All valid keys, oldest first."""
        digests = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}keys"))
        pipe = self._redis.pipeline(transaction=False)
        for digest in digests.values():
            pipe.hgetall(f"{self._prefix}key:{digest}")
        records = await pipe.execute() if digests else []
        return sorted((_key(raw) for raw in records if raw), key=lambda key: key.created)

    async def revoke(self, key_id: str) -> bool:
        """False when there is no such key."""
        digest = await cast(Awaitable[str | None], self._redis.hget(f"{self._prefix}keys", key_id))
        if digest is None:
            return False
        pipe = self._redis.pipeline(transaction=True)
        pipe.delete(f"{self._prefix}key:{digest}")
        pipe.hdel(f"{self._prefix}keys", key_id)
        pipe.sadd(f"{self._prefix}keys:revoked", digest)
        await pipe.execute()
        self._cache.pop(digest, None)
        return True


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(raw: dict[str, str]) -> ApiKey:
    return ApiKey(raw["id"], raw["name"], raw["project"], raw["hint"], float(raw["created"]))
