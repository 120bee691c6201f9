from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest
from PIL import Image
from support.hostile_images import repeated_scan
from support.images import encode_image, image_file, to_base64

from serve_app.inputs import decoders as decoders_module
from serve_app.inputs.decoders import Decoders, FairThreadPool
from serve_app.inputs.images import InvalidFile, read_image
from serve_app.inputs.settings import IMAGES

LARGE = encode_image(Image.effect_noise((512, 512), 90).resize((4400, 4400)), "WEBP", quality=80, method=0)
"""A good image that takes a while."""


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    pool = Decoders(2)
    yield pool
    pool.close()


Running = Callable[[], list[psutil.Process]]


@pytest.fixture
def running() -> Running:
    """The processes that decode for the test."""
    before = set(psutil.Process().children())

    def now() -> list[psutil.Process]:
        children = set(psutil.Process().children()) - before
        return [each for each in children if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    return now


async def test_a_process_answers_as_a_function_would(decoders: Decoders) -> None:
    data = image_file(64, 48)
    for value in (data, to_base64(data), f"data:image/png;base64,{to_base64(data)}"):
        assert await decoders.image(value, "us", IMAGES) == read_image(data)
    assert await decoders.base64(to_base64(b"a film"), "us", 10) == b"a film"


async def test_refusals_leave_the_process_as_it_is(running: Running, decoders: Decoders) -> None:
    await decoders.image(image_file(), "us", IMAGES)
    [process] = running()
    for value in (b"", b"no image", "***", "caf\u00e9", image_file()[:60], repeated_scan(64, 100)):
        with pytest.raises(InvalidFile):
            await decoders.image(value, "us", IMAGES)
    with pytest.raises(InvalidFile, match="too large"):
        await decoders.base64(to_base64(bytes(2000)), "us", 100)
    with pytest.raises(InvalidFile, match="too large"):
        await decoders.image("A" * 40 * 2**20, "us", IMAGES)
    assert (await decoders.image(image_file(), "us", IMAGES)).width == 96
    assert running() == [process]


async def test_an_image_that_takes_too_long_is_refused_and_its_process_replaced(
    running: Running, decoders: Decoders
) -> None:
    await decoders.image(image_file(), "us", IMAGES)
    before = running()
    with pytest.raises(InvalidFile, match="too much work"):
        await decoders.image(LARGE, "us", replace(IMAGES, cpu_s=0))
    assert (await decoders.image(image_file(), "us", IMAGES)).width == 96
    assert not set(before) & set(running())


async def test_an_image_that_takes_too_much_memory_is_refused(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders_module, "MEMORY", 160 * 2**20)
    with pytest.raises(InvalidFile, match="too much memory"):
        await decoders.image(image_file(4400, 4400, mode="I;16"), "us", IMAGES)
    assert (await decoders.image(image_file(), "us", IMAGES)).width == 96


async def test_a_process_that_is_killed_costs_no_one_an_image(running: Running, decoders: Decoders) -> None:
    call = asyncio.create_task(decoders.image(LARGE, "us", IMAGES))
    while not running():
        await asyncio.sleep(0)
    [process] = running()
    os.kill(process.pid, signal.SIGKILL)
    assert (await call).width == 4400
    [process] = running()
    os.kill(process.pid, signal.SIGKILL)
    assert (await decoders.image(image_file(), "us", IMAGES)).width == 96, "an idle one that is gone is replaced"


async def test_a_hostile_owner_keeps_no_other_waiting(running: Running, decoders: Decoders) -> None:
    hostile = [asyncio.create_task(decoders.image(LARGE, "hostile", IMAGES)) for _ in range(6)]
    for _ in range(3):
        assert (await decoders.image(image_file(), "honest", IMAGES)).width == 96
    assert not all(each.done() for each in hostile)
    assert len(running()) == 2
    for each in hostile:
        each.cancel()


def test_processes_end_with_whoever_started_them() -> None:
    script = (
        "import asyncio, os, sys\n"
        "from serve_app.inputs.decoders import Decoders\n"
        "from serve_app.inputs.settings import IMAGES\n"
        "asyncio.run(Decoders(1).base64('AAAA', 'us', 10))\n"
        "import psutil; print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    child_pid = int(result.stdout)
    if psutil.pid_exists(child_pid):
        psutil.Process(child_pid).wait(20)


class Work:
    """Something that takes until it is told to end."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._ends: list[threading.Event] = []
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def perform(self, name: str) -> str:
        end = threading.Event()
        self.started.append(name)
        self._ends.append(end)
        self._loop.call_soon_threadsafe(self._news.set)
        assert end.wait(20)
        return name

    async def begins(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.started) < count:
                self._news.clear()
                await self._news.wait()

    def end(self, index: int) -> None:
        self._ends[index].set()


@pytest.fixture
def threads() -> Iterator[FairThreadPool]:
    pool = FairThreadPool(2, 1, "test")
    yield pool
    pool.close()


async def test_one_owner_leaves_the_rest_to_others(threads: FairThreadPool) -> None:
    work = Work()
    many = [asyncio.create_task(threads.run("greedy", lambda n=n: work.perform(f"greedy {n}"))) for n in range(3)]
    await work.begins(1)
    other = asyncio.create_task(threads.run("other", lambda: work.perform("other")))
    await work.begins(2)
    assert work.started == ["greedy 0", "other"]
    work.end(1)
    assert await other == "other"
    for n, call in enumerate(many):
        work.end(0 if n == 0 else n + 1)
        assert await call == f"greedy {n}"
        await work.begins(min(4, n + 3))


async def test_owners_take_turns() -> None:
    threads, work = FairThreadPool(1, 1, "test"), Work()
    calls = [
        asyncio.create_task(threads.run(name[0], lambda name=name: work.perform(name)))
        for name in ("a1", "a2", "a3", "b1", "b2", "c1")
    ]
    for n in range(len(calls)):
        await work.begins(n + 1)
        work.end(n)
    await asyncio.gather(*calls)
    assert work.started == ["a1", "b1", "c1", "a2", "b2", "a3"] or work.started[1:] == ["a2", "b1", "c1", "a3", "b2"]
    threads.close()


async def test_who_no_longer_waits_gives_no_thread_free(threads: FairThreadPool) -> None:
    work = Work()
    first = asyncio.create_task(threads.run("a", lambda: work.perform("first")))
    await work.begins(1)
    first.cancel()
    second = asyncio.create_task(threads.run("a", lambda: work.perform("second")))
    third = asyncio.create_task(threads.run("a", lambda: work.perform("third")))
    other = asyncio.create_task(threads.run("b", lambda: work.perform("other")))
    await work.begins(2)
    assert work.started == ["first", "other"], "the first goes on, though nobody waits for it"
    second.cancel()
    work.end(0)
    await work.begins(3)
    assert work.started[2] == "third"
    for n in (1, 2):
        work.end(n)
    assert (await other, await third) == ("other", "third")
    assert first.cancelled()
    assert second.cancelled()
