"""Pages of a sorted set, newest first."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from redis.asyncio import Redis


async def page(
    redis: Redis, index: str, limit: int, cursor: str | None, oldest: int | None = None
) -> tuple[list[str], str | None]:
    """Up to `limit` members of `index` after the cursor, and the cursor of the next page, None on the last one.

    Scores are milliseconds; nothing older than `oldest` is there. Raises ValueError for a bad cursor.
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
        found = await cast(
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
        offset += len(found)
        # Members of one millisecond come in falling order; skip what the last page showed.
        rows += [(member, at) for member, at in found if not (after and at == float(top) and member >= after)]
        if cursor is None or len(found) <= limit:
            # The first page is one look: what is newer by the second would move everything along, and be shown twice.
            break
    shown, more = rows[:limit], len(rows) > limit
    return [member for member, _ in shown], f"{int(shown[-1][1])}-{shown[-1][0]}" if more else None
