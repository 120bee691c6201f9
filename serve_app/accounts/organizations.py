"""Organizations, which own projects, members and credits.

| key | kind | holds |
|---|---|---|
| `gen:organization:{id}` | hash | `name created`, maximum tolerances: `safety:{endpoint}`, `ceiling:{category}` |
| `gen:organizations` | set | ids |
| `gen:members:{organization}` | hash | name of a person (a token's `sub`, as `names.fold_name` has it) to role |
| `gen:home:{person}` | string | id of the organization of the person's last session, where the next one begins |

The organization `default` always exists. Keys from before there were organizations act in its project `default`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, cast

from pydantic import StringConstraints
from redis.asyncio import Redis

from serve_app.accounts.audit import AuditedChange, AuditLog, AuditNote
from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Role

NAME: Final = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
"""Id of an organization or a project, which is part of Redis keys and URLs."""

MAX_TOLERANCE: Final = 7
"""Highest safety tolerance of any endpoint."""
_SAFETY: Final = "safety:"
_CEILING: Final = "ceiling:"


@dataclass(frozen=True, slots=True)
class Organization:
    id: str
    name: str
    created: float
    """Epoch seconds."""
    safety: Mapping[str, int] = field(default_factory=dict)
    """Approved maximum tolerances by endpoint, in place of the catalog's."""
    ceilings: Mapping[str, int] = field(default_factory=dict)
    """Maximum tolerances by category of moderation, which bound `safety`."""


class OrganizationStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._change = AuditedChange(redis)

    async def create(self, organization_id: str, name: str, actor: str) -> bool:
        """Returns False if an organization of that id exists."""
        return await self._change.create(
            record=self._key(organization_id),
            index=f"{self._prefix}organizations",
            member=organization_id,
            audit=self._audit.stream(organization_id),
            note=AuditNote(actor, "create organization", organization_id),
            fields={"name": name, "created": time.time()},
        )

    async def get(self, organization_id: str) -> Organization | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(organization_id)))
        return _organization(organization_id, raw)

    async def list(self) -> list[Organization]:
        ids = await self._ids()
        reads = self._redis.pipeline(transaction=False)
        for each in ids:
            reads.hgetall(self._key(each))
        organizations = [_organization(each, raw) for each, raw in zip(ids, await reads.execute(), strict=True)]
        return [organization for organization in organizations if organization is not None]

    async def _ids(self) -> list[str]:
        ids = await cast(Awaitable[set[str]], self._redis.smembers(f"{self._prefix}organizations"))
        return sorted(ids | {DEFAULT_ORGANIZATION})

    async def approve(self, organization_id: str, endpoint: str, tolerance: int | None, actor: str) -> None:
        """Sets the maximum tolerance of an endpoint; None restores the catalog's. Raises LookupError."""
        note = AuditNote(actor, "approve safety", endpoint)
        await self._set_level(organization_id, _SAFETY + endpoint, tolerance, note)

    async def cap(self, organization_id: str, category: str, tolerance: int | None, actor: str) -> None:
        """Sets the maximum tolerance of a category; None removes it. Raises LookupError."""
        note = AuditNote(actor, "cap safety", category)
        await self._set_level(organization_id, _CEILING + category, tolerance, note)

    async def _set_level(self, organization_id: str, field: str, tolerance: int | None, note: AuditNote) -> None:
        if await self.get(organization_id) is None:
            raise LookupError(organization_id)
        transaction = self._redis.pipeline(transaction=True)
        if tolerance is None:
            transaction.hdel(self._key(organization_id), field)
        else:
            transaction.hset(self._key(organization_id), field, str(tolerance))
        self._audit.note(transaction, organization_id, *note, tolerance=tolerance)
        await transaction.execute()

    async def members(self, organization_id: str) -> dict[str, Role]:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._members(organization_id)))
        return {person: Role(role) for person, role in sorted(raw.items())}

    async def get_role(self, organization_id: str, person: str) -> Role | None:
        role = await cast(Awaitable[str | None], self._redis.hget(self._members(organization_id), fold_name(person)))
        return Role(role) if role else None

    async def list_for_person(self, person: str) -> Sequence[str]:
        """Returns the ids of the organizations that have the person as a member."""
        ids = await self._ids()
        reads = self._redis.pipeline(transaction=False)
        for each in ids:
            reads.hexists(self._members(each), fold_name(person))
        return [each for each, is_member in zip(ids, await reads.execute(), strict=True) if is_member]

    async def get_home(self, person: str) -> str | None:
        """Returns the organization of the person's last session, else the first that they became a member of."""
        return await cast(Awaitable[str | None], self._redis.get(self._home(person)))

    async def set_home(self, person: str, organization_id: str) -> None:
        await self._redis.set(self._home(person), organization_id)

    async def has_capacity(self, organization_id: str, person: str, max_members: int) -> bool:
        """Returns whether the person is a member, or there are fewer than `max_members`."""
        reads = self._redis.pipeline(transaction=False)
        reads.hexists(self._members(organization_id), fold_name(person))
        reads.hlen(self._members(organization_id))
        is_member, count = await reads.execute()
        return is_member or count < max_members

    async def set_member(self, organization_id: str, person: str, role: Role, actor: str) -> None:
        person = fold_name(person)
        earlier = await self.list_for_person(person)
        transaction = self._redis.pipeline(transaction=True)
        for each in await self._spellings(organization_id, person):
            transaction.hdel(self._members(organization_id), each)
        transaction.hset(self._members(organization_id), person, role.value)
        transaction.set(self._home(person), [*earlier, organization_id][0], nx=True)
        self._audit.note(transaction, organization_id, actor, "set member", person, role=role.value)
        await transaction.execute()

    async def remove_member(self, organization_id: str, person: str, actor: str) -> bool:
        """Returns False if there is no such member."""
        spellings = await self._spellings(organization_id, person)
        if not spellings:
            return False
        transaction = self._redis.pipeline(transaction=True)
        transaction.hdel(self._members(organization_id), *spellings)
        if await self.list_for_person(person) == [organization_id]:
            transaction.delete(self._home(person))
        self._audit.note(transaction, organization_id, actor, "remove member", fold_name(person))
        return bool((await transaction.execute())[0])

    async def _spellings(self, organization_id: str, person: str) -> list[str]:
        """Returns the stored names of a member, which an earlier release stored in mixed case."""
        folded = fold_name(person)
        return [each for each in await self.members(organization_id) if fold_name(each) == folded]

    def _key(self, organization_id: str) -> str:
        return f"{self._prefix}organization:{organization_id}"

    def _home(self, person: str) -> str:
        return f"{self._prefix}home:{fold_name(person)}"

    def _members(self, organization_id: str) -> str:
        return f"{self._prefix}members:{organization_id}"


def _organization(organization_id: str, raw: Mapping[str, str]) -> Organization | None:
    if "name" not in raw and organization_id != DEFAULT_ORGANIZATION:
        return None
    name, created = raw.get("name", "Default"), float(raw.get("created", 0))
    return Organization(organization_id, name, created, safety_from_record(raw), ceilings_from_record(raw))


def safety_from_record(raw: Mapping[str, str]) -> dict[str, int]:
    """Returns the approved tolerances by endpoint."""
    return _levels(raw, _SAFETY)


def ceilings_from_record(raw: Mapping[str, str]) -> dict[str, int]:
    """Returns the maximum tolerances by category."""
    return _levels(raw, _CEILING)


def _levels(raw: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): int(level) for name, level in raw.items() if name.startswith(prefix)}
