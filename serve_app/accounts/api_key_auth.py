"""API-key authentication.

A key, its project and its organization are read in one round trip and cached for 10 s, so a change of them takes up to
10 s to be seen everywhere.
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

_AUTHENTICATE: Final = (Path(__file__).parent / "authenticate.lua").read_text()
CACHE_S: Final = 10.0
CACHE_SIZE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    id: str
    """Id of the key, or name of the person, for the audit log and tasks."""
    project: Project
    role: Role
    safety: Mapping[str, int]
    """Safety tolerances approved for the organization, by endpoint."""
    ceilings: Mapping[str, int] = field(default_factory=dict)
    """Maximum tolerances of the organization, by category of moderation."""
    expires: float | None = None
    """Epoch seconds."""
    withheld: frozenset[Permission] = frozenset()
    """Permissions of the role that this caller lacks."""

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
        """Returns the caller of a key; None for one that is unknown, revoked or expired.

        Without `use_cache` the store is read, as changes of accounts need.
        """
        return await self.authenticate_digest(hash_secret(secret), use_cache=use_cache)

    async def authenticate_digest(self, digest: str, *, use_cache: bool = True) -> Caller | None:
        """Returns the caller of a key by the SHA-256 of its secret, like `authenticate`."""
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
