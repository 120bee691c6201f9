"""Pages of a list that grows while it is read."""

from __future__ import annotations

from typing import Any, cast

import pytest
from redis.asyncio import Redis

from serve_app.storage.pages import page


class Growing:
    """A Redis in which something newer comes after every look at the list."""

    def __init__(self, redis: Redis, index: str) -> None:
        self._redis, self._index = redis, index
        self._newest = 1000

    async def zrange(self, *args: Any, **options: Any) -> Any:
        found = await self._redis.zrange(*args, **options)
        self._newest += 1
        await self._redis.zadd(self._index, {f"new-{self._newest}": self._newest})
        return found


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("limit", [1, 2, 3, 20])
async def test_nothing_is_twice_or_left_out(redis: Redis, prefix: str, count: int, limit: int) -> None:
    index = f"{prefix}list"
    # Two of a millisecond each, as they come when much is submitted.
    there = {f"task-{number}": 10 + number // 2 for number in range(count)}
    await redis.zadd(index, cast(Any, there))
    growing = cast(Redis, Growing(redis, index))
    seen: list[str] = []
    cursor: str | None = None
    while True:
        shown, cursor = await page(growing, index, limit, cursor)
        seen += shown
        if cursor is None:
            break
    assert len(seen) == len(set(seen))
    assert set(there) <= set(seen)
