"""What is left in the database when all is over: every task, and every movement of money."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from redis.asyncio import Redis

from serve_app.encryption import AtRest

_SEALED = ("result", "details")
"""Of what is looked at."""


@dataclass(frozen=True, slots=True)
class Evidence:
    tasks: Mapping[str, Mapping[str, str]]
    """Records by id, as they read."""
    ledger: Sequence[Mapping[str, str]]
    """Entries, in order."""


async def gathered(store: Redis, at_rest: AtRest) -> Evidence:
    keys = [key async for key in store.scan_iter("gen:task:*", count=1000)]
    pipe = store.pipeline(transaction=False)
    for key in keys:
        pipe.hgetall(key)
    tasks = {
        row["id"]: row | {name: at_rest.open(row[name]) for name in _SEALED if name in row}
        for row in await pipe.execute()
    }
    entries = await cast(Awaitable[list[tuple[str, dict[str, str]]]], store.xrange("gen:ledger:default"))
    return Evidence(tasks, [entry for _, entry in entries])
