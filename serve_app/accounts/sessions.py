"""Browser sessions: who signed in, and the project they are in.

| key | kind | holds |
|---|---|---|
| `gen:session:{sha256}` | hash | `kind subject organization project created`, of a secret that only a cookie holds |
| `gen:sessions:{kind}:{subject}` | set | sha256 of a subject's sessions |

A person may what they are a member for; whoever signed in with a key, what that key may, as long as it is valid; the
one at this machine, what the settings say. It goes when it was not used for `LIFE_S`.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, cast

from cachetools import TTLCache
from redis.asyncio import Redis

from serve_app.accounts.api_key_auth import CACHE_S, CACHE_SIZE, Caller, Callers
from serve_app.accounts.names import fold_name
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.roles import Permission, Role

LIFE_S: Final = 14 * 24 * 3600
MOST: Final = 100
"""Of a subject: whoever signs in by a script, and never out, ends the oldest."""


class Kind(StrEnum):
    PERSON = "person"
    KEY = "key"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Session:
    """`subject` is a person's name, or the SHA-256 of a key's secret."""

    kind: Kind
    subject: str
    organization: str
    project: str
    created: float
    """Epoch seconds."""


class SessionStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix

    async def begin(self, kind: Kind, subject: str, organization: str, project: str) -> str:
        """Its secret, for the cookie."""
        secret = secrets.token_urlsafe(32)
        fields: dict[Any, Any] = {
            "kind": kind.value,
            "subject": subject,
            "organization": organization,
            "project": project,
            "created": time.time(),
        }
        index_key = self._index_key(kind, subject)
        transaction = self._redis.pipeline(transaction=True)
        transaction.hset(self._key(secret), mapping=fields)
        transaction.expire(self._key(secret), LIFE_S)
        transaction.sadd(index_key, _digest(secret))
        transaction.scard(index_key)
        transaction.expire(index_key, LIFE_S)
        *_, count, _ = await transaction.execute()
        if count > MOST:
            await self._end_oldest(index_key)
        return secret

    async def _end_oldest(self, index_key: str) -> None:
        """Of so many as are looked at, those that are over, too."""
        digests = await cast(Awaitable[list[str]], self._redis.srandmember(index_key, 2 * MOST))
        reads = self._redis.pipeline(transaction=False)
        for digest in digests:
            reads.hget(self._at(digest), "created")
        creation_times = {
            digest: float(created or 0) for digest, created in zip(digests, await reads.execute(), strict=True)
        }
        oldest = sorted(creation_times, key=creation_times.__getitem__)
        oldest_digests = [digest for digest in oldest if not creation_times[digest]] or oldest[
            : max(1, len(oldest) - MOST)
        ]
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(*map(self._at, oldest_digests))
        transaction.srem(index_key, *oldest_digests)
        await transaction.execute()

    async def find(self, secret: str) -> Session | None:
        """None where there is none any more. Using it makes it live longer."""
        key = self._key(secret)
        transaction = self._redis.pipeline(transaction=True)
        transaction.hgetall(key)
        transaction.expire(key, LIFE_S)
        raw, _ = await transaction.execute()
        if "kind" not in raw:
            return None
        session = _session_from_record(raw)
        await self._redis.expire(self._index_key(session.kind, session.subject), LIFE_S)
        return session

    async def move(self, secret: str, organization: str, project: str) -> None:
        """Into another project."""
        key = self._key(secret)
        if await self._redis.exists(key):
            fields = {"organization": organization, "project": project}
            transaction = self._redis.pipeline(transaction=True)
            transaction.hset(key, mapping=cast(Mapping[Any, Any], fields))
            transaction.expire(key, LIFE_S)
            await transaction.execute()

    async def end(self, secret: str) -> None:
        session = await self.find(secret)
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(self._key(secret))
        if session is not None:
            transaction.srem(self._index_key(session.kind, session.subject), _digest(secret))
        await transaction.execute()

    async def end_all(self, kind: Kind, subject: str, organization: str | None = None) -> int:
        """Ends the sessions of a subject, in one organization where it is given. Returns how many there were."""
        index_key = self._index_key(kind, subject)
        digests = sorted(await cast(Awaitable[set[str]], self._redis.smembers(index_key)))
        if organization is not None:
            reads = self._redis.pipeline(transaction=False)
            for digest in digests:
                reads.hget(self._at(digest), "organization")
            digests = [each for each, own in zip(digests, await reads.execute(), strict=True) if own == organization]
        if not digests:
            return 0
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(*map(self._at, digests))
        transaction.srem(index_key, *digests)
        ended, _ = await transaction.execute()
        return ended

    def _key(self, secret: str) -> str:
        return self._at(_digest(secret))

    def _at(self, digest: str) -> str:
        return f"{self._prefix}session:{digest}"

    def _index_key(self, kind: Kind, subject: str) -> str:
        name = fold_name(subject) if kind is Kind.PERSON else subject
        return f"{self._prefix}sessions:{kind.value}:{name}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _session_from_record(raw: Mapping[str, str]) -> Session:
    return Session(Kind(raw["kind"]), raw["subject"], raw["organization"], raw["project"], float(raw["created"]))


LOCAL: Final = "local"
"""What the one at this machine is called, in the audit log and of tasks."""


class SessionResolver:
    """Remembers callers for 10 s, like those of keys."""

    def __init__(
        self,
        sessions: SessionStore,
        callers: Callers,
        organizations: OrganizationStore,
        projects: ProjectStore,
        local_role: Role | None,
    ) -> None:
        self._sessions, self._callers = sessions, callers
        self._organizations, self._projects = organizations, projects
        self._local_role = local_role
        self._cache: TTLCache[str, Caller] = TTLCache(CACHE_SIZE, CACHE_S, timer=time.monotonic)

    async def caller(self, secret: str, *, use_cache: bool = True) -> Caller | None:
        """None for a session that ended, or of someone who may nothing any more. Without `use_cache` the store is
        asked."""
        if not use_cache:
            self.forget(secret)
        caller = self._cache.get(secret)
        if caller is None:
            session = await self._sessions.find(secret)
            caller = None if session is None else await self.resolve(session, use_cache=use_cache)
            # Those of keys are cached already: twice would be for 20 s.
            if caller is not None and session is not None and session.kind is not Kind.KEY:
                self._cache[secret] = caller
        return caller

    def forget(self, secret: str) -> None:
        """What is cached of it, here: it moved or ended."""
        self._cache.pop(secret, None)

    async def resolve(self, session: Session, *, use_cache: bool = True) -> Caller | None:
        project = await self._projects.find(session.project)
        if project is None or project.organization != session.organization:
            return None
        match session.kind:
            case Kind.KEY:
                return await self._resolve_key(session.subject, project, use_cache)
            case Kind.PERSON:
                role = await self._organizations.get_role(session.organization, session.subject)
                return None if role is None else await self._build_caller(session.subject, role, project)
            case Kind.LOCAL:
                return None if self._local_role is None else await self._build_caller(LOCAL, self._local_role, project)

    async def _resolve_key(self, digest: str, project: Project, use_cache: bool) -> Caller | None:
        """A key that may manage projects stands for any of them, others for their own."""
        caller = await self._callers.authenticate_digest(digest, use_cache=use_cache)
        if caller is None or caller.project.id == project.id:
            return caller
        same = project.organization == caller.organization or caller.may(Permission.OPERATE)
        return replace(caller, project=project) if same and caller.may(Permission.MANAGE_PROJECTS) else None

    async def _build_caller(self, name: str, role: Role, project: Project) -> Caller | None:
        organization = await self._organizations.get(project.organization)
        if organization is None:
            return None
        return Caller(name, project, role, organization.safety, organization.ceilings)
