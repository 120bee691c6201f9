"""Browser sessions: the subject that signed in, and its project.

| key | kind | holds |
|---|---|---|
| `gen:session:{sha256}` | hash | `kind subject organization project created`; the secret is only in a cookie |
| `gen:sessions:{kind}:{subject}` | set | sha256 of a subject's sessions |

A person has the permissions of their membership, a key its own as long as it is valid, the local user those of the role
in the settings. A session expires when it was not used for `LIFE_S`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, cast

from cachetools import TTLCache
from redis.asyncio import Redis

from serve_app.accounts.api_key_auth import CACHE_S, CACHE_SIZE, Caller, Callers
from serve_app.accounts.keys import hash_secret
from serve_app.accounts.names import fold_name
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.roles import Permission, Role

LIFE_S: Final = 14 * 24 * 3600
MAX_SESSIONS: Final = 100
"""Sessions of a subject. Another one ends the oldest, for scripts that sign in and never out."""


class SubjectType(StrEnum):
    PERSON = "person"
    KEY = "key"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Session:
    subject_type: SubjectType
    subject: str
    """Name of a person, or SHA-256 of a key's secret."""
    organization: str
    project: str
    created: float
    """Epoch seconds."""


class SessionStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix

    async def begin(self, subject_type: SubjectType, subject: str, organization: str, project: str) -> str:
        """Returns the secret of a new session, for the cookie."""
        secret = secrets.token_urlsafe(32)
        fields: dict[Any, Any] = {
            "kind": subject_type.value,
            "subject": subject,
            "organization": organization,
            "project": project,
            "created": time.time(),
        }
        index_key = self._index_key(subject_type, subject)
        transaction = self._redis.pipeline(transaction=True)
        transaction.hset(self._key(secret), mapping=fields)
        transaction.expire(self._key(secret), LIFE_S)
        transaction.sadd(index_key, hash_secret(secret))
        transaction.scard(index_key)
        transaction.expire(index_key, LIFE_S)
        *_, count, _ = await transaction.execute()
        if count > MAX_SESSIONS:
            await self._end_oldest(index_key)
        return secret

    async def _end_oldest(self, index_key: str) -> None:
        """Removes expired sessions from the index, or ends the oldest ones if none has expired."""
        digests = await cast(Awaitable[list[str]], self._redis.srandmember(index_key, 2 * MAX_SESSIONS))
        reads = self._redis.pipeline(transaction=False)
        for digest in digests:
            reads.hget(self._record(digest), "created")
        created = {
            digest: float(created_at or 0) for digest, created_at in zip(digests, await reads.execute(), strict=True)
        }
        by_age = sorted(created, key=created.__getitem__)
        expired = [digest for digest in by_age if not created[digest]]
        await self._delete(index_key, expired or by_age[: max(1, len(by_age) - MAX_SESSIONS)])

    async def _delete(self, index_key: str, digests: Sequence[str]) -> int:
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(*map(self._record, digests))
        transaction.srem(index_key, *digests)
        return (await transaction.execute())[0]

    async def find(self, secret: str) -> Session | None:
        """Returns the session, if it exists, and prolongs its life."""
        key = self._key(secret)
        transaction = self._redis.pipeline(transaction=True)
        transaction.hgetall(key)
        transaction.expire(key, LIFE_S)
        raw, _ = await transaction.execute()
        if "kind" not in raw:
            return None
        session = _session_from_record(raw)
        await self._redis.expire(self._index_key(session.subject_type, session.subject), LIFE_S)
        return session

    async def move(self, secret: str, organization: str, project: str) -> None:
        """Moves the session to another project."""
        key = self._key(secret)
        if await self._redis.exists(key):
            transaction = self._redis.pipeline(transaction=True)
            transaction.hset(key, mapping={"organization": organization, "project": project})
            transaction.expire(key, LIFE_S)
            await transaction.execute()

    async def end(self, secret: str) -> None:
        session = await self.find(secret)
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(self._key(secret))
        if session is not None:
            transaction.srem(self._index_key(session.subject_type, session.subject), hash_secret(secret))
        await transaction.execute()

    async def end_all(self, subject_type: SubjectType, subject: str, organization: str | None = None) -> int:
        """Ends the sessions of a subject, only those in `organization` if given. Returns their number."""
        index_key = self._index_key(subject_type, subject)
        digests = sorted(await cast(Awaitable[set[str]], self._redis.smembers(index_key)))
        if organization is not None:
            reads = self._redis.pipeline(transaction=False)
            for digest in digests:
                reads.hget(self._record(digest), "organization")
            organizations = await reads.execute()
            digests = [each for each, found in zip(digests, organizations, strict=True) if found == organization]
        return await self._delete(index_key, digests) if digests else 0

    def _key(self, secret: str) -> str:
        return self._record(hash_secret(secret))

    def _record(self, digest: str) -> str:
        return f"{self._prefix}session:{digest}"

    def _index_key(self, subject_type: SubjectType, subject: str) -> str:
        name = fold_name(subject) if subject_type is SubjectType.PERSON else subject
        return f"{self._prefix}sessions:{subject_type.value}:{name}"


def _session_from_record(raw: Mapping[str, str]) -> Session:
    return Session(SubjectType(raw["kind"]), raw["subject"], raw["organization"], raw["project"], float(raw["created"]))


LOCAL: Final = "local"
"""Name of the local user in the audit log and tasks."""


class SessionResolver:
    """Resolves sessions to callers, which it caches for 10 s like those of keys."""

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
        """Returns the session's caller; None if the session ended, or its subject has no permission any more."""
        if not use_cache:
            self.forget(secret)
        caller = self._cache.get(secret)
        if caller is None:
            session = await self._sessions.find(secret)
            caller = None if session is None else await self.resolve(session, use_cache=use_cache)
            # `Callers` caches keys already: caching them twice would take 20 s.
            if caller is not None and session is not None and session.subject_type is not SubjectType.KEY:
                self._cache[secret] = caller
        return caller

    def forget(self, secret: str) -> None:
        """Drops a session that moved or ended from this process's cache."""
        self._cache.pop(secret, None)

    async def resolve(self, session: Session, *, use_cache: bool = True) -> Caller | None:
        project = await self._projects.find(session.project)
        if project is None or project.organization != session.organization:
            return None
        match session.subject_type:
            case SubjectType.KEY:
                return await self._resolve_key(session.subject, project, use_cache)
            case SubjectType.PERSON:
                role = await self._organizations.get_role(session.organization, session.subject)
                return None if role is None else await self._build_caller(session.subject, role, project)
            case SubjectType.LOCAL:
                return None if self._local_role is None else await self._build_caller(LOCAL, self._local_role, project)

    async def _resolve_key(self, digest: str, project: Project, use_cache: bool) -> Caller | None:
        """Returns the key's caller in `project`: its own project, or any one that the key may manage."""
        caller = await self._callers.authenticate_digest(digest, use_cache=use_cache)
        if caller is None or caller.project.id == project.id:
            return caller
        in_reach = project.organization == caller.organization or caller.may(Permission.OPERATE)
        return replace(caller, project=project) if in_reach and caller.may(Permission.MANAGE_PROJECTS) else None

    async def _build_caller(self, name: str, role: Role, project: Project) -> Caller | None:
        organization = await self._organizations.get(project.organization)
        if organization is None:
            return None
        return Caller(name, project, role, organization.safety, organization.ceilings)
