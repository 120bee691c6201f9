from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from deployments.batcher import Batcher


class BatchedWork:
    """Doubles numbers, refuses negative ones, and holds batches while the gate is closed."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int]:
        assert self.gate.wait(60)
        self.batches.append(list(items))
        if min(items) < 0:
            raise ValueError("negative")
        return [2 * item for item in items]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


async def start_calls(batcher: Batcher[int, int], *items: int) -> list[asyncio.Task[int]]:
    """Returns calls that wait for a batch."""
    calls = [asyncio.create_task(batcher(item)) for item in items]
    for _ in range(3):
        await asyncio.sleep(0)
    return calls


async def test_calls_during_a_batch_form_the_next_batches(executor: ThreadPoolExecutor) -> None:
    work = BatchedWork()
    batcher = Batcher(work, executor, max_batch=3)
    first = await start_calls(batcher, 1)
    others = await start_calls(batcher, 2, 3, 4, 5)
    assert batcher.busy_since is not None
    work.gate.set()
    assert await asyncio.gather(*first, *others) == [2, 4, 6, 8, 10]
    assert work.batches == [[1], [2, 3, 4], [5]]
    assert batcher.busy_since is None


async def test_bad_item_fails_alone(executor: ThreadPoolExecutor) -> None:
    work = BatchedWork()
    work.gate.set()
    batcher = Batcher(work, executor, max_batch=8)
    results = await asyncio.gather(*(batcher(item) for item in (1, -1, 3)), return_exceptions=True)
    assert [results[0], results[2]] == [2, 6]
    assert isinstance(results[1], ValueError)


async def test_failures_in_a_row_are_unhealthy_except_bad_items(executor: ThreadPoolExecutor) -> None:
    answers: list[Exception | None] = []

    def work(items: Sequence[int]) -> list[int]:
        if answer := answers.pop(0):
            raise answer
        return list(items)

    batcher = Batcher(work, executor, max_batch=8)
    first = ((RuntimeError(), 1), (ValueError(), 1), (RuntimeError(), 2), (None, 0))
    for answer, faults in (*first, (RuntimeError(), 1), (MemoryError(), 2), (RuntimeError(), 3)):
        batcher.check_health(60, faults=3)
        answers.append(answer)
        await asyncio.gather(batcher(1), return_exceptions=True)
        assert batcher.faults == faults
    with pytest.raises(RuntimeError, match="3 calls in a row"):
        batcher.check_health(60, faults=3)


async def test_cancelled_call_leaves_its_batch(executor: ThreadPoolExecutor) -> None:
    work = BatchedWork()
    batcher = Batcher(work, executor, max_batch=8)
    first = await start_calls(batcher, 1)
    dropped, waiting_call = await start_calls(batcher, 2, 3)
    dropped.cancel()
    work.gate.set()
    assert await asyncio.gather(*first, waiting_call) == [2, 6]
    assert work.batches == [[1], [3]]
