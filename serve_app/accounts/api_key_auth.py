"""API-key authentication: a key to its caller, project and organization, in one step.

A key is looked up in one round trip, and cached for 10 s: so long may a change of it, or of what it belongs to,
take to be seen everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cachetools import TTLCache
from redis.asyncio import Redis

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.keys import hash_secret, key_from_record
from serve_app.accounts.organizations import ceilings_from_record, safety_from_record
from serve_app.accounts.projects import DEFAULT_PROJECT, Project, project_from_record
from serve_app.accounts.roles import PERMISSIONS, Permission, Role

_AUTHENTICATE = (Path(__file__).parent / "authenticate.lua").read_text()
CACHE_S: Final = 10.0
CACHE_SIZE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    id: str
    """Of the key, or who the token says it is: what the audit log and tasks name."""
    project: Project
    role: Role
    safety: Mapping[str, int]
    """The organization's own approved safety tolerances, by endpoint."""
    ceilings: Mapping[str, int] = field(default_factory=dict)
    """The organization's own, by category of moderation."""
    expires: float | None = None
    """Epoch seconds."""
    withheld: frozenset[Permission] = frozenset()
    """What it may not, of what its role may."""

    @property
    def organization(self) -> str:
        return self.project.organization

    def may(self, permission: Permission) -> bool:
        return permission in PERMISSIONS[self.role] - self.withheld


class Callers:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._prefix = prefix
        self._authenticate = redis.register_script(_AUTHENTICATE)
        self._cache: TTLCache[str, Caller] = TTLCache(CACHE_SIZE, CACHE_S, timer=time.monotonic)

    async def authenticate(self, secret: str, *, use_cache: bool = True) -> Caller | None:
        """None for a key that is unknown, revoked or expired. Without `use_cache` the store is asked."""
        return await self.authenticate_digest(hash_secret(secret), use_cache=use_cache)

    async def authenticate_digest(self, digest: str, *, use_cache: bool = True) -> Caller | None:
        """The same of the SHA-256 of a secret."""
        caller = self._cache.get(digest) if use_cache else None
        if caller is None:
            caller = await self._look_up(digest)
            if caller is None:
                self._cache.pop(digest, None)
                return None
            self._cache[digest] = caller
        return None if caller.expires is not None and caller.expires <= time.time() else caller

    async def _look_up(self, digest: str) -> Caller | None:
        reply: list[list[Any]] = await self._authenticate(
            keys=[self._prefix], args=[self._prefix, digest, DEFAULT_ORGANIZATION, DEFAULT_PROJECT]
        )
        if not reply:
            return None
        key_fields, project, organization = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in reply)
        key = key_from_record(key_fields)
        return Caller(
            key.id,
            project_from_record(key.project, project),
            key.role,
            safety_from_record(organization),
            ceilings_from_record(organization),
            expires=key.expires,
        )
