"""Threads for work that one customer can ask for so much of that others would wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class FairThreads:
    """Owners who wait for a thread take turns, and none has more than `per_owner` at a time. For one event loop."""

    def __init__(self, threads: int, per_owner: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._per_owner = per_owner
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Whoever had a turn last is last."""

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """What `work` comes to. Its thread counts as taken until it ends, also where nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        await self._turn(owner)
        running = self._threads.submit(work)

        def ended(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every wait
                loop.call_soon_threadsafe(self._end, owner)

        running.add_done_callback(ended)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Waits for no work that is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, owner: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(owner, turn)
            else:
                self._end(owner)
            raise

    def _end(self, owner: str) -> None:
        self._free += 1
        self._busy -= Counter((owner,))
        self._give()

    def _give(self) -> None:
        """Every free thread to an owner who waits and has none too many, in turn."""
        while self._free:
            owner = next((each for each in self._waiting if self._busy[each] < self._per_owner), None)
            if owner is None:
                return
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.cancelled():
                self._free -= 1
                self._busy[owner] += 1
                turn.set_result(None)

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(owner)
        if turns and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[owner]
