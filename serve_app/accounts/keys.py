"""API keys, shown once and stored as a hash.

| key | kind | holds |
|---|---|---|
| `gen:key:{sha256}` | hash | `id name project role hint created`, and `expires` if it does, of a valid key |
| `gen:keys` | hash | id to sha256 of valid keys |
| `gen:keys_of:{project}` | set | ids of its keys |
| `gen:keys:used` | hash | id to last use, epoch seconds, some seconds late |
| `gen:keys:revoked` | set | sha256 of revoked keys without `once` |

A key with `once` in its record is never registered again. Keys have 256 random bits, so a plain SHA-256 is as safe as a
slow hash and costs nothing per request. A secret is looked up by its hash, so timing tells nothing about it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from serve_app.accounts.audit import CREATE_KEY, AuditLog, IndexFull
from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.projects import DEFAULT_PROJECT
from serve_app.accounts.roles import Role

logger = logging.getLogger(__name__)

_PAGE: Final = 500
KEY_PREFIX: Final = "gen_"
"""Prefix of secrets, which tokens lack."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """API key without its secret. Times are epoch seconds."""

    id: str
    name: str
    project: str
    hint: str
    """First characters of the secret, by which people tell keys apart."""
    created: float
    role: Role = Role.DEVELOPER
    expires: float | None = None
    used: float | None = None


class KeyStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)

    async def create(
        self,
        name: str,
        project: str = DEFAULT_PROJECT,
        secret: str | None = None,
        *,
        role: Role = Role.DEVELOPER,
        expires: float | None = None,
        organization: str = DEFAULT_ORGANIZATION,
        actor: str = "operator",
        max_keys: int | None = None,
        once: bool = True,
    ) -> tuple[ApiKey, str]:
        """Creates a key, or registers the given `secret` again. Returns it with its secret, which is not stored.

        `organization` is that of the project. Without `once` the caller keeps the secret and may register it again, so
        its revocation is remembered. Raises IndexFull if the project has `max_keys`.
        """
        if max_keys is not None and await self._count(project) >= max_keys:
            raise IndexFull
        secret = secret or KEY_PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(secrets.token_hex(6), name, project, secret[:10], time.time(), role, expires)
        digest = hash_secret(secret)
        fields: dict[Any, Any] = {
            "id": key.id,
            "name": name,
            "project": project,
            "role": role.value,
            "hint": key.hint,
            "created": key.created,
            **({} if expires is None else {"expires": expires}),
            **({"once": 1} if once else {}),
        }
        transaction = self._redis.pipeline(transaction=True)
        transaction.hset(f"{self._prefix}key:{digest}", mapping=fields)
        transaction.hset(f"{self._prefix}keys", key.id, digest)
        transaction.sadd(self._index_key(project), key.id)
        transaction.scard(self._index_key(project))
        transaction.hsetnx(f"{self._prefix}project:{project}", "organization", organization)
        transaction.sadd(f"{self._prefix}projects:{organization}", project)
        self._audit.note(transaction, organization, actor, CREATE_KEY, key.id, project=project, role=role.value)
        _, _, _, count, *_ = await transaction.execute()
        if max_keys is not None and count > max_keys:  # several calls at once
            await self.revoke(key.id, organization=organization, actor=actor)
            raise IndexFull
        return key, secret

    async def is_revoked(self, secret: str) -> bool:
        """Returns whether a key without `once` was revoked. Its secret must not be registered again."""
        member = self._redis.sismember(f"{self._prefix}keys:revoked", hash_secret(secret))
        return bool(await cast(Awaitable[int], member))

    async def list(self, project: str | None = None) -> list[ApiKey]:
        """Returns all keys, or those of a project, oldest first, with expired ones."""
        if project is None:
            keys = [key async for page in self._pages() for key in page]
        else:
            ids = await cast(Awaitable[set[str]], self._redis.smembers(self._index_key(project)))
            keys = await self._read(list(ids))
        return sorted(keys, key=lambda key: key.created)

    async def _pages(self) -> AsyncIterator[Sequence[ApiKey]]:
        """Yields all keys in pages. A key that is created or revoked meanwhile may be missing."""
        cursor, listed_ids = 0, set[str]()
        while True:
            page = self._redis.hscan(f"{self._prefix}keys", cursor, count=_PAGE)
            cursor, digests = await cast(Awaitable[tuple[int, dict[str, str]]], page)
            new = [key_id for key_id in digests if key_id not in listed_ids]
            listed_ids.update(new)
            yield await self._read(new)
            if cursor == 0:
                return

    async def _read(self, ids: Sequence[str]) -> Sequence[ApiKey]:
        if not ids:
            return []
        digests, last_uses = await asyncio.gather(
            *(
                cast(Awaitable[list[str | None]], self._redis.hmget(f"{self._prefix}{name}", list(ids)))
                for name in ("keys", "keys:used")
            )
        )
        pipe = self._redis.pipeline(transaction=False)
        for digest in digests:
            pipe.hgetall(f"{self._prefix}key:{digest}")
        return [key_from_record(raw, at) for raw, at in zip(await pipe.execute(), last_uses, strict=True) if raw]

    async def _count(self, project: str) -> int:
        return await cast(Awaitable[int], self._redis.scard(self._index_key(project)))

    def _index_key(self, project: str) -> str:
        return f"{self._prefix}keys_of:{project}"

    async def forget_names(self, project: str) -> None:
        """Replaces the names of the project's keys by their ids."""
        for key_id in await cast(Awaitable[set[str]], self._redis.smembers(self._index_key(project))):
            digest = await cast(Awaitable[str | None], self._redis.hget(f"{self._prefix}keys", key_id))
            if digest is not None:
                await self._rename(f"{self._prefix}key:{digest}", key_id)

    async def _rename(self, record: str, name: str) -> None:
        async def rename(pipe: Pipeline) -> None:
            exists = await pipe.exists(record)
            pipe.multi()
            if exists:  # a write would revive the record of a key that was just revoked
                pipe.hset(record, "name", name)

        await self._redis.transaction(rename, record)

    async def get(self, key_id: str) -> ApiKey | None:
        digest = await cast(Awaitable[str | None], self._redis.hget(f"{self._prefix}keys", key_id))
        if digest is None:
            return None
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}key:{digest}"))
        return key_from_record(raw) if raw else None

    async def revoke(self, key_id: str, *, organization: str = DEFAULT_ORGANIZATION, actor: str = "operator") -> bool:
        """Revokes a key, everywhere within 10 s. Returns False if there is none."""
        digest = await cast(Awaitable[str | None], self._redis.hget(f"{self._prefix}keys", key_id))
        if digest is None:
            return False
        project, once = await cast(
            Awaitable[list[str | None]], self._redis.hmget(f"{self._prefix}key:{digest}", ["project", "once"])
        )
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(f"{self._prefix}key:{digest}")
        transaction.srem(self._index_key(project or DEFAULT_PROJECT), key_id)
        transaction.hdel(f"{self._prefix}keys", key_id)
        transaction.hdel(f"{self._prefix}keys:used", key_id)
        if not once:
            transaction.sadd(f"{self._prefix}keys:revoked", digest)
        self._audit.note(transaction, organization, actor, "revoke key", key_id)
        await transaction.execute()
        return True


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def key_from_record(raw: Mapping[str, str], last_use: str | None = None) -> ApiKey:
    return ApiKey(
        raw["id"],
        raw["name"],
        raw.get("project", DEFAULT_PROJECT),
        raw["hint"],
        float(raw["created"]),
        Role(raw["role"]),
        float(raw["expires"]) if "expires" in raw else None,
        float(last_use) if last_use else None,
    )
