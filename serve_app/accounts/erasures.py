"""Erasures of what projects have: that one was asked for, how far it is, and what came of it.

| key | kind | holds |
|---|---|---|
| `gen:erasure:{project}` | hash | of the latest: `began by done` (epoch seconds), how many of each kind of DELETED, |
| | | `ledger`: entries that are left, `looked_at`: keys; `listed {id}`: objects that are about to be deleted |

The project is closed by the step that begins an erasure, so nothing is added to what is erased. It stays closed until
it is opened again, by hand; an erasure that comes after that is another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog
from serve_app.accounts.projects import Project

DELETED: Final = ("tasks", "deliveries", "replies", "finetunes", "names", "objects")
"""`replies`: to requests with an idempotency key, and to calls of dispatchers. `names`: of keys, there and in the audit
log."""

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Erasure:
    project: str
    by: str
    began: float
    """Epoch seconds."""
    done: float | None
    """None: it is not, and has to be asked for again."""
    deleted: Mapping[str, int]
    ledger: int | None
    """Entries of the organization's ledger about the project: amounts, times and ids, which stay."""
    looked_at: int | None
    """Keys of the store that were looked through in the end, so that nothing is left that no index knows."""


class ErasureStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._begin, self._note_listed, self._end = (
            redis.register_script((_HERE / f"{name}.lua").read_text())
            for name in ("begin_erasure", "note_listed", "end_erasure")
        )

    async def get(self, project: str) -> Erasure | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self.key(project)))
        if "began" not in raw:
            return None

        def number(name: str) -> int | None:
            return int(raw[name]) if name in raw else None

        return Erasure(
            project,
            raw["by"],
            float(raw["began"]),
            float(raw["done"]) if "done" in raw else None,
            {kind: number(kind) or 0 for kind in DELETED},
            number("ledger"),
            number("looked_at"),
        )

    async def is_under_way(self, project: str) -> bool:
        erasure = await self.get(project)
        return erasure is not None and erasure.done is None

    async def begin(self, project: Project, actor: str) -> Erasure:
        """Closes the project. Where that was done before, and it was not opened since, the erasure of then."""
        await self._begin(
            keys=[self._prefix],
            args=[
                self.key(project.id),
                f"{self._prefix}project:{project.id}",
                f"{self._prefix}projects:{project.organization}",
                project.id,
                project.organization,
                self._audit.stream(project.organization),
                actor,
            ],
        )
        return await self._found(project.id)

    async def note_listed(self, project: str, objects: Mapping[str, int]) -> None:
        """Notes how many objects there are of each id, before they are deleted; what was noted before stays."""
        flat = [part for pair in objects.items() for part in pair]
        await self._note_listed(keys=[self._prefix], args=[self.key(project), *flat])

    async def end(self, project: Project, ledger: int, looked_at: int) -> Erasure:
        audit = self._audit.stream(project.organization)
        await self._end(keys=[self._prefix], args=[self.key(project.id), project.id, ledger, looked_at, audit])
        return await self._found(project.id)

    def key(self, project: str) -> str:
        return f"{self._prefix}erasure:{project}"

    async def _found(self, project: str) -> Erasure:
        erasure = await self.get(project)
        assert erasure is not None
        return erasure
