"""An answer that many ask for, and that is good for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """Asks once for all who come together, and again only when the answer is `for_s` seconds old. An error is kept for
    nobody."""

    def __init__(
        self, ask: Callable[[], Awaitable[T]], for_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._for_s = for_s
        self._clock = clock
        self._asking = asyncio.Lock()
        self._answer: tuple[float, T] | None = None

    async def get(self) -> T:
        async with self._asking:
            if self._answer is None or self._clock() - self._answer[0] >= self._for_s:
                self._answer = (self._clock(), await self._ask())
            return self._answer[1]
