from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from serve_app.inputs.decoders import FairThreads


class Work:
    """Something that takes until it is told to end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._ends: list[threading.Event] = []
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def of(self, name: str) -> str:
        end = threading.Event()
        self.begun.append(name)
        self._ends.append(end)
        self._loop.call_soon_threadsafe(self._news.set)
        assert end.wait(20)
        return name

    async def begins(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.begun) < count:
                self._news.clear()
                await self._news.wait()

    def end(self, index: int) -> None:
        self._ends[index].set()


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    made = FairThreads(2, 1, "test")
    yield made
    made.close()


async def test_one_owner_leaves_the_rest_to_others(threads: FairThreads) -> None:
    work = Work()
    many = [asyncio.create_task(threads.run("greedy", lambda n=n: work.of(f"greedy {n}"))) for n in range(3)]
    await work.begins(1)
    other = asyncio.create_task(threads.run("other", lambda: work.of("other")))
    await work.begins(2)
    assert work.begun == ["greedy 0", "other"]
    work.end(1)
    assert await other == "other"
    for n, asked in enumerate(many):
        work.end(0 if n == 0 else n + 1)
        assert await asked == f"greedy {n}"
        await work.begins(min(4, n + 3))


async def test_owners_take_turns() -> None:
    threads, work = FairThreads(1, 1, "test"), Work()
    asked = [
        asyncio.create_task(threads.run(name[0], lambda name=name: work.of(name)))
        for name in ("a1", "a2", "a3", "b1", "b2", "c1")
    ]
    for n in range(len(asked)):
        await work.begins(n + 1)
        work.end(n)
    await asyncio.gather(*asked)
    assert work.begun == ["a1", "b1", "c1", "a2", "b2", "a3"] or work.begun[1:] == ["a2", "b1", "c1", "a3", "b2"]
    threads.close()


async def test_who_no_longer_waits_gives_no_thread_free(threads: FairThreads) -> None:
    work = Work()
    first = asyncio.create_task(threads.run("a", lambda: work.of("first")))
    await work.begins(1)
    first.cancel()
    second = asyncio.create_task(threads.run("a", lambda: work.of("second")))
    third = asyncio.create_task(threads.run("a", lambda: work.of("third")))
    other = asyncio.create_task(threads.run("b", lambda: work.of("other")))
    await work.begins(2)
    assert work.begun == ["first", "other"], "the first goes on, though nobody waits for it"
    second.cancel()
    work.end(0)
    await work.begins(3)
    assert work.begun[2] == "third"
    for n in (1, 2):
        work.end(n)
    assert (await other, await third) == ("other", "third")
    assert first.cancelled()
    assert second.cancelled()


async def test_failures_are_the_callers(threads: FairThreads) -> None:
    def fail() -> None:
        raise KeyError("x")

    for _ in range(3):
        with pytest.raises(KeyError):
            await threads.run("a", fail)
    assert await threads.run("a", lambda: 1) == 1
