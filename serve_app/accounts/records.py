"""Makes a record in one step: it, its index entry and its line in the audit log are there, or none of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

_SCRIPT = (Path(__file__).parent / "create.lua").read_text()


class IndexFull(Exception):
    """There are as many records as there may be."""


class Creation:
    def __init__(self, redis: Redis) -> None:
        self._script = redis.register_script(_SCRIPT)

    async def __call__(
        self,
        *,
        record: str,
        index: str,
        member: str,
        audit: str,
        note: tuple[str, str, str],
        fields: Mapping[str, Any],
        most: int | None = None,
    ) -> bool:
        """`note` is actor, action and subject. False when there is a record of that key, which stays as it is. Raises
        IndexFull where `most` are in the index."""
        flat = [part for pair in fields.items() for part in pair]
        made = await self._script(keys=[record], args=[record, index, member, audit, *note, most or 0, *flat])
        if made < 0:
            raise IndexFull
        return made == 1
