"""Dynamic batching: items that arrive one by one go through a network together.

Whatever comes while a batch is in work is the next batch. So nothing ever waits for a batch to fill up, and under load
batches are large by themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class Batcher(Generic[In, Out]):
    """Belongs to one event loop."""

    def __init__(self, work: Callable[[Sequence[In]], Sequence[Out]], executor: Executor, most: int) -> None:
        """`work` runs in `executor`, with at most `most` items, and answers each in order."""
        self._work = work
        self._executor = executor
        self._most = most
        self._waiting: deque[tuple[In, asyncio.Future[Out]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.busy_since: float | None = None
        """Monotonic time at which the batch in work was begun; None while there is none."""
        self.faults = 0
        """Calls in a row that failed, but for those that raised ValueError: that speaks of the items."""

    async def __call__(self, item: In) -> Out:
        """Raises what `work` raises for this item alone. An item whose caller goes before its turn costs nothing."""
        answer: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while batch := self._next():
                await self._answer(batch)
        finally:
            self._worker = None

    def _next(self) -> list[tuple[In, asyncio.Future[Out]]]:
        batch: list[tuple[In, asyncio.Future[Out]]] = []
        while self._waiting and len(batch) < self._most:
            item, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((item, answer))
        return batch

    async def _answer(self, batch: list[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            results = await self._call([item for item, _ in batch])
        except Exception as problem:
            if len(batch) == 1:
                _fail(batch[0][1], problem)
                return
            for each in batch:  # one by one: a bad item is to fail alone
                await self._answer([each])
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)

    async def _call(self, items: Sequence[In]) -> Sequence[Out]:
        self.busy_since = time.monotonic()
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._executor, self._work, items)
        except ValueError:
            raise
        except Exception:
            self.faults += 1
            raise
        finally:
            self.busy_since = None
        self.faults = 0
        return results

    def check_health(self, limit_s: float, faults: int) -> None:
        """Raises RuntimeError when a new process would do better: a call hangs for longer, or so many failed."""
        if self.busy_since is not None and time.monotonic() - self.busy_since > limit_s:
            raise RuntimeError(f"a batch has been in work for more than {limit_s:g} s")
        if self.faults >= faults:
            raise RuntimeError(f"{self.faults} batches in a row failed")


def _fail(answer: asyncio.Future[Out], problem: Exception) -> None:
    if not answer.done():
        answer.set_exception(problem)
