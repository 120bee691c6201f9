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
from support.hostile_images import repeated_scan
from support.images import image_file, to_base64

from serve_app.inputs import decoders as decoders_module
from serve_app.inputs.decoders import Decoders, FairThreadPool
from serve_app.inputs.images import InvalidFile, read_image
from serve_app.inputs.settings import IMAGES


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    pool = Decoders(2)
    yield pool
    pool.close()


Running = Callable[[], list[psutil.Process]]


@pytest.fixture
def running() -> Running:
    """Returns the decoder processes that the test started."""
    before = set(psutil.Process().children())

    def list_running() -> list[psutil.Process]:
        children = set(psutil.Process().children()) - before
        return [each for each in children if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    return list_running


async def wait_for_process(running: Running) -> psutil.Process:
    while not running():
        await asyncio.sleep(0)
    [process] = running()
    return process


async def test_one_process_decodes_all_files_and_survives_refusals(running: Running, decoders: Decoders) -> None:
    data = image_file(64, 48)
    for value in (data, to_base64(data), f"data:image/png;base64,{to_base64(data)}"):
        assert await decoders.image(value, "us", IMAGES) == read_image(data)
    [process] = running()
    soft, _ = process.rlimit(psutil.RLIMIT_CPU)
    assert 0 < soft - sum(process.cpu_times()[:2]) <= IMAGES.cpu_s + 1, "its next file may take this long"
    for value in (b"", b"no image", "***", "caf\u00e9", data[:60], repeated_scan(64, 100)):
        with pytest.raises(InvalidFile):
            await decoders.image(value, "us", IMAGES)
    with pytest.raises(InvalidFile, match="too large"):
        await decoders.base64(to_base64(bytes(2000)), "us", 100)
    with pytest.raises(InvalidFile, match="too large"):
        await decoders.image("A" * 40 * 2**20, "us", IMAGES)
    assert await decoders.base64(to_base64(b"a film"), "us", 10) == b"a film"
    assert running() == [process]


async def test_hung_process_is_replaced_and_its_image_refused(running: Running, decoders: Decoders) -> None:
    await decoders.image(image_file(), "us", IMAGES)
    [before] = running()
    before.suspend()
    with pytest.raises(InvalidFile, match="too much work"):
        await decoders.image(image_file(), "us", replace(IMAGES, cpu_s=0))
    assert (await decoders.image(image_file(), "us", IMAGES)).width == 96
    assert before not in running()


async def test_image_that_takes_too_much_memory_is_refused(decoders: Decoders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders_module, "MEMORY", 160 * 2**20)
    with pytest.raises(InvalidFile, match="too much memory"):
        await decoders.image(image_file(4400, 4400, mode="I;16"), "us", IMAGES)
    assert (await decoders.image(image_file(), "us", IMAGES)).width == 96


async def test_killed_process_is_replaced_busy_or_idle(running: Running, decoders: Decoders) -> None:
    for _ in range(2):
        call = asyncio.create_task(decoders.image(image_file(), "us", IMAGES))
        process = await wait_for_process(running)
        process.kill()
        assert (await call).width == 96
        assert running() != [process]


async def test_image_whose_process_hits_its_limit_is_not_retried(running: Running, decoders: Decoders) -> None:
    call = asyncio.create_task(decoders.image(image_file(), "us", IMAGES))
    (await wait_for_process(running)).send_signal(signal.SIGXCPU)
    with pytest.raises(InvalidFile, match="too much work"):
        await call
    assert running() == []


async def test_owner_has_half_of_the_processes(running: Running, decoders: Decoders) -> None:
    hostile = [asyncio.create_task(decoders.image(image_file(), "hostile", IMAGES)) for _ in range(3)]
    process = await wait_for_process(running)
    process.suspend()
    for _ in range(2):
        assert (await decoders.image(image_file(), "honest", IMAGES)).width == 96
    assert not any(each.done() for each in hostile)
    process.resume()
    await asyncio.gather(*hostile)
    assert len(running()) == 2


def test_processes_end_with_their_parent() -> None:
    script = (
        "import asyncio, os, psutil\n"
        "from serve_app.inputs.decoders import Decoders\n"
        "asyncio.run(Decoders(1).base64('AAAA', 'us', 10))\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    child_pid = int(result.stdout)
    if psutil.pid_exists(child_pid):
        psutil.Process(child_pid).wait(20)


class Work:
    """Calls that each run in a thread until the test ends them."""

    def __init__(self, threads: FairThreadPool) -> None:
        self.started: list[str] = []
        self._threads = threads
        self._ends: list[threading.Event] = []

    def submit(self, name: str) -> asyncio.Task[str]:
        """The owner is the first letter of the name."""
        return asyncio.create_task(self._threads.run(name[0], lambda: self._perform(name)))

    def _perform(self, name: str) -> str:
        end = threading.Event()
        self._ends.append(end)
        self.started.append(name)
        assert end.wait(60)
        return name

    async def starts(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.started) < count:
                await asyncio.sleep(0)

    def end(self, *indices: int) -> None:
        for index in indices:
            self._ends[index].set()


@pytest.fixture
def work() -> Iterator[Work]:
    pool = FairThreadPool(2, 1, "test")
    yield Work(pool)
    pool.close()


async def test_owner_leaves_other_threads_to_others(work: Work) -> None:
    greedy = [work.submit(f"greedy {n}") for n in range(3)]
    await work.starts(1)
    other = work.submit("other")
    await work.starts(2)
    assert work.started == ["greedy 0", "other"]
    work.end(1)
    assert await other == "other"
    for n, call in enumerate(greedy):
        await work.starts(min(4, n + 2))
        work.end(0 if n == 0 else n + 1)
        assert await call == f"greedy {n}"


async def test_owners_take_turns() -> None:
    threads = FairThreadPool(1, 1, "test")
    work = Work(threads)
    calls = [work.submit(name) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
    for n in range(len(calls)):
        await work.starts(n + 1)
        work.end(n)
    await asyncio.gather(*calls)
    assert work.started == ["a1", "b1", "c1", "a2", "b2", "a3"] or work.started[1:] == ["a2", "b1", "c1", "a3", "b2"]
    threads.close()


async def test_cancelled_call_keeps_its_thread_until_its_work_ends(work: Work) -> None:
    first = work.submit("a1")
    await work.starts(1)
    first.cancel()
    second, third, other = work.submit("a2"), work.submit("a3"), work.submit("b1")
    await work.starts(2)
    assert work.started == ["a1", "b1"]
    second.cancel()
    work.end(0)
    await work.starts(3)
    assert work.started[2] == "a3"
    work.end(1, 2)
    assert (await other, await third) == ("b1", "a3")
    assert first.cancelled()
    assert second.cancelled()
