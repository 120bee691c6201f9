"""Pages of sorted sets, newest first, and batches of keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, cast

from redis.asyncio import Redis

_BATCH: Final = 500


async def page(
    redis: Redis, index: str, limit: int, cursor: str | None, oldest: int | None = None
) -> tuple[list[str], str | None]:
    """Returns up to `limit` members of `index` after the cursor, and the next cursor; None on the last page.

    Scores are milliseconds; members with a score under `oldest` are left out. Raises ValueError for a bad cursor.
    """
    top, after = "+inf", ""
    if cursor is not None:
        created, _, after = cursor.partition("-")
        if not (created.isascii() and created.isdigit()) or not after:
            raise ValueError("cursor")
        top = created
    rows: list[tuple[str, float]] = []
    offset = 0
    while len(rows) <= limit:
        batch = await cast(
            Awaitable[list[tuple[str, float]]],
            redis.zrange(
                index,
                cast(Any, top),
                cast(Any, "-inf" if oldest is None else oldest),
                desc=True,
                byscore=True,
                withscores=True,
                offset=offset,
                num=limit + 1,
            ),
        )
        offset += len(batch)
        # Members of one millisecond come in descending order; skip those of the last page.
        rows += [(member, at) for member, at in batch if not (after and at == float(top) and member >= after)]
        if cursor is None or len(batch) <= limit:
            # The first page takes one read: members added before a second would shift the offset and repeat rows.
            break
    members, more = rows[:limit], len(rows) > limit
    return [member for member, _ in members], f"{int(members[-1][1])}-{members[-1][0]}" if more else None


async def scan_prefix(redis: Redis, prefix: str) -> AsyncIterator[list[str]]:
    """Yields batches of the keys that begin with `prefix`. A key may come twice."""
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", prefix) + "*"
    cursor = 0
    while True:
        cursor, keys = await redis.scan(cursor, match=pattern, count=_BATCH)
        if keys:
            yield cast(list[str], keys)
        if not cursor:
            return
