"""Creation of an indexed record and its audit entry in one step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from serve_app.accounts.audit import AuditNote

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
