"""Dynamic batching: runs items that arrive one by one through a network together.

Items that arrive while a batch is running form the next one. So no item waits for a batch to fill up, and batches grow
with the load.
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
    """Batches calls of `work`. Belongs to one event loop."""

    def __init__(
        self,
        work: Callable[[Sequence[In]], Sequence[Out]],
        executor: Executor,
        max_batch: int,
        item_faults: tuple[type[Exception], ...] = (ValueError,),
    ) -> None:
        """`work` runs in `executor` with up to `max_batch` items, and returns one result for each, in order.

        `item_faults` are errors that say nothing about the model's health.
        """
        self._work = work
        self._executor = executor
        self._max_batch = max_batch
        self._item_faults = item_faults
        self._waiting: deque[tuple[In, asyncio.Future[Out]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.busy_since: float | None = None
        """Monotonic time at which the running batch started; None without one."""
        self.faults = 0
        """Failed calls in a row, without those whose items are at fault."""

    async def __call__(self, item: In) -> Out:
        """Raises what `work` raises for this item alone. Items of cancelled calls are skipped."""
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
        while self._waiting and len(batch) < self._max_batch:
            item, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((item, answer))
        return batch

    async def _answer(self, batch: list[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            results = await self._call([item for item, _ in batch])
        except Exception as problem:
            if len(batch) == 1:
                if not batch[0][1].done():
                    batch[0][1].set_exception(problem)
                return
            for each in batch:  # one by one, so that only a bad item fails
                await self._answer([each])
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)

    async def _call(self, items: Sequence[In]) -> Sequence[Out]:
        self.busy_since = time.monotonic()
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._executor, self._work, items)
        except Exception as problem:
            self.faults += not isinstance(problem, self._item_faults)
            raise
        finally:
            self.busy_since = None
        self.faults = 0
        return results

    def check_health(self, limit_s: float, faults: int) -> None:
        """Raises RuntimeError if a new process would help: a call runs for more than `limit_s`, or `faults` failed."""
        if self.busy_since is not None and time.monotonic() - self.busy_since > limit_s:
            raise RuntimeError(f"a call has been running for more than {limit_s:g} s")
        if self.faults >= faults:
            raise RuntimeError(f"{self.faults} calls in a row failed")
