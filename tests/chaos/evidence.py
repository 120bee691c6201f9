"""What is left in the database when all is over: every task, and every movement of money."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from redis.asyncio import Redis


@dataclass(frozen=True, slots=True)
class Evidence:
    tasks: Mapping[str, Mapping[str, str]]
    """Records by id."""
    ledger: Sequence[Mapping[str, str]]
    """Entries, in order."""


async def gathered(store: Redis) -> Evidence:
    keys = [key async for key in store.scan_iter("gen:task:*", count=1000)]
    pipe = store.pipeline(transaction=False)
    for key in keys:
        pipe.hgetall(key)
    tasks = {row["id"]: row for row in await pipe.execute()}
    entries = await cast(Awaitable[list[tuple[str, dict[str, str]]]], store.xrange("gen:ledger:default"))
    return Evidence(tasks, [entry for _, entry in entries])
