"""Cache of one asynchronous call, shared by concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlightCache(Generic[T]):
    """Caches the value of a call for `ttl_s` seconds.

    Concurrent callers share one call and its error; errors are not cached. A cancelled caller does not cancel the call.
    """

    def __init__(
        self, call: Callable[[], Awaitable[T]], ttl_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call = call
        self._ttl_s = ttl_s
        self._clock = clock
        self._cached: tuple[float, T] | None = None
        self._refreshing: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._cached is not None and self._clock() - self._cached[0] < self._ttl_s:
            return self._cached[1]
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(_retrieve)
        return await asyncio.shield(self._refreshing)

    def clear(self) -> None:
        """Discards the cached value, and that of a running call."""
        self._cached = self._refreshing = None

    async def _refresh(self) -> T:
        started_at, current = self._clock(), asyncio.current_task()
        try:
            value = await self._call()
            if self._refreshing is current:
                self._cached = (started_at, value)
            return value
        finally:
            if self._refreshing is current:
                self._refreshing = None


def _retrieve(task: asyncio.Task[T]) -> None:
    """Retrieves the error of a call whose callers were all cancelled, which asyncio would log."""
    if not task.cancelled():
        task.exception()
