"""Projects: share of the queue, limits, spending.

| key | kind | holds |
|---|---|---|
| `gen:project:{id}` | hash | the fields below; limits in milli-credits |
| `gen:projects:{organization}` | set | ids of its projects |

Fields: `organization`; `weight`, the share of the queue against other projects, 0.01 to 100; `statuses`, `full` or
`basic`; `max_active`, the maximum of unfinished tasks; `limit_day limit_week limit_month`, the maximum spending;
`closed`, present while the project takes neither tasks nor tuned models. Missing fields have defaults. Submissions read
the limits and `closed` in their atomic step, so a change applies to the next submission.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from cachetools import TTLCache
from redis.asyncio import Redis

from serve_app.accounts.audit import AuditedChange, AuditLog, AuditNote
from serve_app.accounts.credits import DEFAULT_ORGANIZATION

DEFAULT_PROJECT: Final = "default"
MIN_WEIGHT: Final = 0.01
MAX_WEIGHT: Final = 100.0
"""Bounds of weights, which `tasks/fair.lua` repeats."""
MAX_ACTIVE: Final = 1_000_000
_CACHE_S: Final = 10.0
_CACHE_SIZE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Project:
    id: str
    organization: str = DEFAULT_ORGANIZATION
    weight: float = 1.0
    statuses: Literal["full", "basic"] = "full"
    """`basic` reports `Reasoning` and `Generating` as `Pending`, for clients that reject unknown statuses."""
    max_active: int | None = None
    limit_day: int | None = None
    limit_week: int | None = None
    limit_month: int | None = None
    closed: bool = False
    """True while the project takes neither tasks nor tuned models."""


class ProjectStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._change = AuditedChange(redis)
        self._cache: TTLCache[str, Project] = TTLCache(_CACHE_SIZE, _CACHE_S, timer=time.monotonic)

    async def create(self, project_id: str, organization: str, actor: str, max_projects: int | None = None) -> bool:
        """Returns False if a project of that id exists, in any organization.

        Raises IndexFull if the organization has `max_projects`.
        """
        if project_id == DEFAULT_PROJECT:
            return False
        return await self._change.create(
            record=self._key(project_id),
            index=f"{self._prefix}projects:{organization}",
            member=project_id,
            audit=self._audit.stream(organization),
            note=AuditNote(actor, "create project", project_id),
            fields={"organization": organization},
            max_members=max_projects,
        )

    async def find(self, project_id: str) -> Project | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(project_id)))
        return _existing_project(project_id, raw)

    async def get(self, project_id: str) -> Project:
        """Returns a project, up to 10 s old; one with the defaults if it was never created."""
        project = self._cache.get(project_id)
        if project is None:
            project = self._cache[project_id] = await self.find(project_id) or Project(project_id)
        return project

    async def list(self, organization: str) -> list[Project]:
        ids = await cast(Awaitable[set[str]], self._redis.smembers(f"{self._prefix}projects:{organization}"))
        if organization == DEFAULT_ORGANIZATION:
            ids |= {DEFAULT_PROJECT}
        reads = self._redis.pipeline(transaction=False)
        for project_id in sorted(ids):
            reads.hgetall(self._key(project_id))
        projects = [_existing_project(each, raw) for each, raw in zip(sorted(ids), await reads.execute(), strict=True)]
        # Creating a key adds its project to the index, even one of another organization.
        return [project for project in projects if project is not None and project.organization == organization]

    async def change(self, project: Project, changes: Mapping[str, Any], actor: str) -> None:
        """Sets fields of the project; None restores the default. The caller validates the values."""
        transaction = self._redis.pipeline(transaction=True)
        key = self._key(project.id)
        # The default project has neither a record nor an index before its first change.
        transaction.hsetnx(key, "organization", project.organization)
        transaction.sadd(f"{self._prefix}projects:{project.organization}", project.id)
        for name, value in changes.items():
            if value is None:
                transaction.hdel(key, name)
            else:
                transaction.hset(key, name, str(value))
        self._audit.note(transaction, project.organization, actor, "change project", project.id, **changes)
        await transaction.execute()
        self._cache.pop(project.id, None)

    def _key(self, project_id: str) -> str:
        return f"{self._prefix}project:{project_id}"


def _existing_project(project_id: str, raw: Mapping[str, str]) -> Project | None:
    return project_from_record(project_id, raw) if raw or project_id == DEFAULT_PROJECT else None


def project_from_record(project_id: str, raw: Mapping[str, str]) -> Project:
    def number(name: str) -> int | None:
        return int(raw[name]) if name in raw else None

    return Project(
        project_id,
        organization=raw.get("organization", DEFAULT_ORGANIZATION),
        weight=float(raw.get("weight", 1.0)),
        statuses="basic" if raw.get("statuses") == "basic" else "full",
        max_active=number("max_active"),
        limit_day=number("limit_day"),
        limit_week=number("limit_week"),
        limit_month=number("limit_month"),
        closed="closed" in raw,
    )
