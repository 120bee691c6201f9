"""Audit log of an organization.

| key | kind | holds |
|---|---|---|
| `gen:audit:{organization}` | stream | `actor action subject` and the values that were set; the last `ENTRIES` |

An entry is written in the same transaction as its change: neither is without the other.

Entries name keys by id. The name of a key is joined from its record (`accounts/keys.py`) at reading, so it is shown as
long as the key exists, and the deletion of a project's data, which renames its keys, need not edit the log. Entries of
0.2 hold names: they are not shown, and leave the store with their entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from serve_app.accounts.history import ENTRIES, page_stream

CREATE_KEY: Final = "create key"


class AuditNote(NamedTuple):
    actor: str
    action: str
    subject: str


@dataclass(frozen=True, slots=True)
class AuditEvent:
    id: str
    at: float
    """Epoch seconds."""
    actor: str
    action: str
    subject: str
    details: Mapping[str, str]


class AuditLog:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix

    def stream(self, organization: str) -> str:
        return f"{self._prefix}audit:{organization}"

    def note(
        self, transaction: Pipeline, organization: str, actor: str, action: str, subject: str, **details: Any
    ) -> None:
        """Adds an entry to the transaction that makes the change. Details must not be secrets."""
        entry: dict[Any, Any] = {"actor": actor, "action": action, "subject": subject}
        entry |= {name: "" if value is None else str(value) for name, value in details.items()}
        transaction.xadd(self.stream(organization), entry, maxlen=ENTRIES)

    async def read(
        self, organization: str, limit: int, before: str | None = None
    ) -> tuple[list[AuditEvent], str | None]:
        """Returns up to `limit` entries older than `before`, newest first, and the last one's id if more follow."""
        rows, following = await page_stream(self._redis, self.stream(organization), limit, before)
        names = await self._key_names([fields["subject"] for _, fields in rows if fields["action"] == CREATE_KEY])
        return [_event(entry_id, dict(fields), names) for entry_id, fields in rows], following

    async def _key_names(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Returns the names of those keys that still exist."""
        digests = await self._redis.hmget(f"{self._prefix}keys", list(ids)) if ids else []
        pipe = self._redis.pipeline(transaction=False)
        for digest in digests:
            pipe.hget(f"{self._prefix}key:{digest}", "name")
        return {key_id: name for key_id, name in zip(ids, await pipe.execute(), strict=True) if name}


def _event(entry_id: str, fields: dict[str, str], key_names: Mapping[str, str]) -> AuditEvent:
    at = int(entry_id.partition("-")[0]) / 1000
    actor, action, subject = (fields.pop(name) for name in ("actor", "action", "subject"))
    if action == CREATE_KEY:
        fields.pop("name", None)  # written by 0.2; goes after 0.3
        if subject in key_names:
            fields["name"] = key_names[subject]
    return AuditEvent(entry_id, at, actor, action, subject, fields)


_CREATE = (Path(__file__).parent / "create.lua").read_text()


class IndexFull(Exception):
    """The index has its maximum of records."""


class AuditedChange:
    def __init__(self, redis: Redis) -> None:
        self._create = redis.register_script(_CREATE)

    async def create(
        self,
        *,
        record: str,
        index: str,
        member: str,
        audit: str,
        note: AuditNote,
        fields: Mapping[str, Any],
        max_members: int | None = None,
    ) -> bool:
        """Creates `record` and adds `member` to `index`. Returns False, without a change, if the record exists.

        Raises IndexFull if the index has `max_members`.
        """
        flat = [part for pair in fields.items() for part in pair]
        code = await self._create(keys=[record], args=[record, index, member, audit, *note, max_members or 0, *flat])
        if code < 0:
            raise IndexFull
        return code == 1
