"""Projects: share of the queue, limits, spending.

| key | kind | holds |
|---|---|---|
| `gen:project:{id}` | hash | field by field below; limits in milli-credits |
| `gen:projects:{organization}` | set | ids of its projects |

`organization`; `weight`: share of the queue against other projects, 0.01 to 100; `statuses`: `full` or `basic`;
`max_active`: tasks that have not ended; `limit_day limit_week limit_month`: what may be spent; `closed`: there while it
takes neither tasks nor tuned models. What is not there has a default. Submissions read limits, and whether it is
closed, in their own atomic step, so a change of them holds for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from cachetools import TTLCache
from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog, Creation
from serve_app.accounts.credits import DEFAULT_ORGANIZATION

DEFAULT_PROJECT = "default"
LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 100.0
"""`tasks/fair.lua` holds every share of the queue to these bounds."""
MOST_ACTIVE: Final = 1_000_000
_CACHE_S = 10.0
_CACHE_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class Project:
    id: str
    organization: str = DEFAULT_ORGANIZATION
    weight: float = 1.0
    statuses: Literal["full", "basic"] = "full"
    """`basic` reports `Reasoning` and `Generating` as `Pending`, for clients that reject strings they don't know."""
    max_active: int | None = None
    limit_day: int | None = None
    limit_week: int | None = None
    limit_month: int | None = None
    closed: bool = False
    """Takes neither tasks nor tuned models."""


class ProjectStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._create = Creation(redis)
        self._cache: TTLCache[str, Project] = TTLCache(_CACHE_SIZE, _CACHE_S, timer=time.monotonic)

    async def create(self, project_id: str, organization: str, actor: str, most: int | None = None) -> bool:
        """False when there is one of that id, in whatever organization. Raises IndexFull where this one has `most`."""
        if project_id == DEFAULT_PROJECT:
            return False
        return await self._create(
            record=self._key(project_id),
            index=f"{self._prefix}projects:{organization}",
            member=project_id,
            audit=self._audit.stream(organization),
            note=(actor, "create project", project_id),
            fields={"organization": organization},
            most=most,
        )

    async def find(self, project_id: str) -> Project | None:
        """None when nobody made it."""
        return _existing_project(
            project_id, await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(project_id)))
        )

    async def get(self, project_id: str) -> Project:
        """One that nobody made has the defaults. A change takes effect within 10 s everywhere."""
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
        # Keys may have put a project of another organization into the index of theirs.
        return [project for project in projects if project is not None and project.organization == organization]

    async def change(self, project: Project, changes: Mapping[str, Any], actor: str) -> None:
        """Sets what `changes` name of the project; None means the default. Raises ValueError for what can't be."""
        if unknown := set(changes) - set(_SOUND):
            raise ValueError(f"{sorted(unknown)} can't be changed")
        for name, value in changes.items():
            if value is not None and not _SOUND[name].holds(value):
                raise ValueError(f"{name} can't be {value!r}: it must be {_SOUND[name].said}")
        transaction = self._redis.pipeline(transaction=True)
        key = self._key(project.id)
        # In the record and its index, too, if it is there by default.
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


class _Bound(NamedTuple):
    said: str
    holds: Callable[[Any], bool]


_LIMIT = _Bound("a whole number, 0 or more", lambda limit: isinstance(limit, int) and limit >= 0)
_SOUND: Mapping[str, _Bound] = {
    "weight": _Bound(f"from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}", lambda weight: LEAST_WEIGHT <= weight <= MOST_WEIGHT),
    "statuses": _Bound("full or basic", lambda statuses: statuses in ("full", "basic")),
    "max_active": _Bound(
        f"a whole number from 1 to {MOST_ACTIVE}", lambda most: isinstance(most, int) and 1 <= most <= MOST_ACTIVE
    ),
    "closed": _Bound("true, or nothing", lambda closed: closed is True),
    **dict.fromkeys(("limit_day", "limit_week", "limit_month"), _LIMIT),
}


def _existing_project(project_id: str, raw: Mapping[str, str]) -> Project | None:
    """None when nobody made it."""
    return project_from_record(project_id, raw) if raw or project_id == DEFAULT_PROJECT else None


def project_from_record(project_id: str, raw: Mapping[str, str]) -> Project:
    """The record, as a project."""

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
