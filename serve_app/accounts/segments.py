"""Segments: what the object store keeps of an organization's ledger, audit log and counts, and Redis no longer does.

| key | kind | holds |
|---|---|---|
| `gen:segments:{kind}:{organization}` | stream | the index: a segment, by the id of its last row; `first mark` |

A segment is the object `archive/{kind}/{organization}/{first}_{last}_{mark}.jsonl.gz`: a row a line, oldest first, its
`id` and its fields as Redis had them. It is never changed; another may take its place (`rewrite`). `mark` begins the
SHA-256 of the lines, so that no name ever stands for two contents, whoever writes to the same store. An object that is
not in the index does not count.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from obstore.exceptions import BaseError
from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore

Kind: TypeAlias = Literal["ledger", "audit", "usage", "generations"]
Row: TypeAlias = tuple[str, dict[str, str]]
"""An id, as streams of Redis have them, and fields."""

_REPLACE: Final = (Path(__file__).parent / "replace_segment.lua").read_text()
_GZIP: Final = "application/gzip"


class ArchiveOutOfReach(Exception):
    """Older rows are in the object store, and can't be read from it now."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Ids of its first and its last row, and the mark of its lines."""

    first: str
    last: str
    mark: str


class Segments:
    def __init__(self, redis: Redis, prefix: str, kind: Kind, objects: ObjectStore | None = None) -> None:
        """Without `objects` whatever reaches back to a segment raises ArchiveOutOfReach."""
        self._redis = redis
        self._prefix = prefix
        self._kind = kind
        self._objects = objects
        self._replace = redis.register_script(_REPLACE)

    def index(self, organization: str) -> str:
        return f"{self._prefix}segments:{self._kind}:{organization}"

    async def write(self, organization: str, rows: Sequence[Row]) -> Segment:
        """Stores rows, oldest first, as a segment that is in no index yet. The same rows make the same object."""
        if self._objects is None:
            raise ArchiveOutOfReach(self._kind)
        lines = "".join(json.dumps({"id": row_id, **fields}) + "\n" for row_id, fields in rows).encode()
        segment = Segment(rows[0][0], rows[-1][0], hashlib.sha256(lines).hexdigest()[:8])
        packed = await asyncio.to_thread(gzip.compress, lines, mtime=0)
        await self._objects.put_durably(self._object(organization, segment), packed, _GZIP)
        return segment

    async def before(self, organization: str, limit: int, row_id: str | None) -> list[Row]:
        """Up to `limit` rows, newest first, older than `row_id`, if one is given. Raises ArchiveOutOfReach."""
        rows: list[Row] = []
        for segment in await self._newest(organization, limit, row_id):
            found = await self._rows(organization, segment)
            rows += [row for row in reversed(found) if row_id is None or _order(row[0]) < _order(row_id)]
            if len(rows) >= limit:
                break
        return rows[:limit]

    async def between(self, organization: str, first: str, last: str) -> list[Row]:
        """The rows from `first` to `last`, both included, oldest first. Raises ArchiveOutOfReach."""
        index = await cast(
            Awaitable[list[tuple[str, dict[str, str]]]], self._redis.xrange(self.index(organization), min=first)
        )
        segments = [_segment(*entry) for entry in index]
        wanted = [segment for segment in segments if _order(segment.first) <= _order(last)]
        found = await asyncio.gather(*(self._rows(organization, segment) for segment in wanted))
        return [row for rows in found for row in rows if _order(first) <= _order(row[0]) <= _order(last)]

    async def rewrite(
        self, organization: str, change: Callable[[dict[str, str]], dict[str, str]], counts: str, field: str
    ) -> None:
        """Puts others in place of segments with rows that `change` changes, which are counted in the hash `counts`.

        May be called again after a crash: a segment that was replaced, and is still there, is deleted then. Raises
        ArchiveOutOfReach.
        """
        assert self._objects is not None
        for segment in await self._all(organization):
            rows = await self._rows(organization, segment)
            changed = [(row_id, change(fields)) for row_id, fields in rows]
            if changed != rows:
                new = await self.write(organization, changed)
                n = sum(old != now for old, now in zip(rows, changed, strict=True))
                args = [self.index(organization), segment.last, segment.mark, new.mark, counts, field, n]
                await self._replace(keys=[self._prefix], args=args)
        current = {self._object(organization, segment) for segment in await self._all(organization)}
        spans = {key.rpartition("_")[0] for key in current}
        kept = await self._objects.keys(f"archive/{self._kind}/{organization}")
        await self._objects.delete([key for key in kept if key not in current and key.rpartition("_")[0] in spans])

    async def _all(self, organization: str) -> list[Segment]:
        """Oldest first."""
        rows = await cast(Awaitable[list[Row]], self._redis.xrange(self.index(organization)))
        return [_segment(*row) for row in rows]

    async def _newest(self, organization: str, limit: int, row_id: str | None) -> list[Segment]:
        """Those that hold anything older than `row_id`, newest first; at most as many as can be needed."""
        index = self._redis.pipeline(transaction=False)
        if row_id is not None:
            index.xrange(self.index(organization), min=row_id, count=1)
        index.xrevrange(self.index(organization), max=f"({row_id}" if row_id else "+", count=limit)
        found: list[list[tuple[str, dict[str, str]]]] = await index.execute()
        segments = [_segment(*entry) for entries in found for entry in entries]
        return [each for each in segments if row_id is None or _order(each.first) < _order(row_id)]

    async def _rows(self, organization: str, segment: Segment) -> list[Row]:
        key = self._object(organization, segment)
        if self._objects is None:
            raise ArchiveOutOfReach(key)
        try:
            packed = await self._objects.get(key)
        except (BaseError, OSError) as problem:
            raise ArchiveOutOfReach(f"{key}: {type(problem).__name__}") from problem
        return await asyncio.to_thread(_unpacked, packed)

    def _object(self, organization: str, segment: Segment) -> str:
        return f"archive/{self._kind}/{organization}/{segment.first}_{segment.last}_{segment.mark}.jsonl.gz"


def _segment(last: str, fields: Mapping[str, str]) -> Segment:
    return Segment(fields["first"], last, fields["mark"])


def _order(row_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in row_id.split("-"))


def _unpacked(packed: bytes) -> list[Row]:
    rows: list[dict[str, str]] = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    return [(row.pop("id"), row) for row in rows]
