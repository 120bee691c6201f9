"""The concurrency limiter of attempts, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from support.clock import Clock

from serve_app.dispatcher.concurrency import ConcurrencyLimiter


def key(n: int) -> tuple[str, int]:
    return str(n), 1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Line:
    """Attempts that are admitted, prepared and started when the test says so."""

    def __init__(self, headroom: int, max_preparing: int = 256) -> None:
        self.starts: list[float] = []
        self.clock = Clock()
        self.limiter = ConcurrencyLimiter(headroom, max_preparing, self.clock.monotonic)
        self.called: list[int] = []
        self.slots: dict[int, asyncio.Task[None]] = {}

    def enter(self, *numbers: int) -> None:
        for n in numbers:
            self.limiter.admit(key(n))

    async def prepare(self, *numbers: int) -> None:
        for n in numbers:
            self.slots[n] = asyncio.create_task(self._acquire(n))
        await settle()

    async def _acquire(self, n: int) -> None:
        await self.limiter.acquire(key(n))
        self.called.append(n)


async def test_headroom_limits_calls_that_have_not_started() -> None:
    line = Line(headroom=2)
    line.enter(*range(6))
    await line.prepare(*range(6))
    assert line.called == [0, 1]
    line.limiter.mark_started(key(1))
    await settle()
    assert line.called == [0, 1, 2]
    other = Line(headroom=1)
    other.enter(0, 1, 2, 3)
    await other.prepare(2, 3, 0)
    other.limiter.mark_started(key(2))
    await settle()
    assert other.called == [2, 3], "what is prepared first is called first"


async def test_released_attempt_frees_its_slot_in_every_state() -> None:
    line = Line(headroom=1)
    line.enter(0, 1, 2, 3)
    await line.prepare(0, 1, 2)
    line.slots.pop(1).cancel()
    for number in (1, 3, 0, 0):
        line.limiter.release(key(number))
    await settle()
    assert line.called == [0, 2]
    line.limiter.release(key(2))
    assert line.limiter.capacity() == 1


async def test_preparation_does_not_count_towards_the_headroom() -> None:
    line = Line(headroom=2)
    for n in range(8):
        assert line.limiter.capacity() > 0, n
        line.enter(n)
    assert line.limiter.capacity() == 0, "nothing is known of the pace yet"
    await line.prepare(0, 1, 2)
    assert line.limiter.capacity() <= 0, "nor while the model takes nothing"


async def run(
    line: Line, per_s: float, prepare_s: float, seconds: int, *, together: int = 1, work_s: float = 1.0
) -> list[int]:
    """Prepares each task for `prepare_s`, and starts up to `per_s` of them a second, `together` at a time, for `work_s`
    each. Returns how many tasks waited at each start."""
    entered: dict[int, float] = {}
    running: deque[tuple[float, int]] = deque()
    waited: list[int] = []
    count = 0
    for tick in range(round(seconds * per_s)):
        line.clock.sleep(1 / per_s)
        while line.limiter.capacity() > 0:
            line.enter(count)
            entered[count] = line.clock.now
            count += 1
        due = [n for n, since in entered.items() if line.clock.now - since >= prepare_s]
        for n in due:
            del entered[n]
        await line.prepare(*due)
        while running and line.clock.now - running[0][0] >= work_s:
            line.limiter.release(key(running.popleft()[1]))
        if tick % together:
            continue
        waited.append(count - len(line.starts))
        for _ in range(together):
            if line.called:
                n = line.called.pop(0)
                line.limiter.mark_started(key(n))
                line.starts.append(line.clock.now)
                running.append((line.clock.now, n))
                await settle()
    return waited


@pytest.mark.parametrize(("per_s", "prepare_s"), [(50, 0.15), (100, 1.0)])
async def test_slow_moderation_keeps_no_model_idle(per_s: int, prepare_s: float) -> None:
    line = Line(headroom=4)
    await run(line, per_s, prepare_s, seconds=12)
    newest = [at for at in line.starts if at > line.clock.now - 4]
    assert len(newest) >= 0.95 * 4 * per_s


async def test_slow_model_with_large_batches_is_not_overcommitted() -> None:
    """A new task would wait behind all committed ones."""
    line = Line(headroom=4)
    waited = await run(line, per_s=0.8, prepare_s=4.0, seconds=600, together=8, work_s=20.0)
    assert max(waited[10:]) <= 24, "it begins with six in the time that preparing takes twice"
    newest = [at for at in line.starts if at > line.clock.now - 200]
    assert len(newest) >= 0.95 * 200 * 0.8


async def test_moderator_that_is_down_parks_a_limited_number() -> None:
    line = Line(headroom=4, max_preparing=40)
    await run(line, per_s=100, prepare_s=0.3, seconds=6)
    entered = 0
    while line.limiter.capacity() > 0 and entered < 1000:
        line.limiter.admit(("parked", entered))
        entered += 1
    assert entered <= 40


async def test_closing_wakes_all_waiting_attempts() -> None:
    line = Line(headroom=1)
    line.enter(0, 1, 2)
    await line.prepare(0, 1, 2)
    line.limiter.close()
    await settle()
    assert line.called == [0, 1, 2]
