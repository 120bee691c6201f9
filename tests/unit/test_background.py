"""A replica whose loop hangs, or does nothing but fail, is unhealthy; one that waits for work is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from serve_app import background
from serve_app.background import BackgroundTasks, idle


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FAILS_S", 0.0)
    monkeypatch.setattr(background, "HANGS_S", 0.0)
    monkeypatch.setattr(background, "_PAUSE_S", 0.001)


async def broken() -> None:
    raise ValueError("a bug")


async def stuck() -> None:
    await asyncio.Event().wait()


async def waiting() -> None:
    with idle():
        await asyncio.Event().wait()


async def cancelled_inside() -> None:
    raise asyncio.CancelledError


async def away() -> None:
    raise RedisConnectionError


@pytest.mark.parametrize(
    ("body", "rounds", "fault"),
    [
        (broken, 3, r"the work loop has failed \d+ times in a row"),
        (cancelled_inside, 3, r"the work loop has failed \d+ times in a row"),
        (stuck, 1, "the work loop hangs"),
        (waiting, 1, None),
        (away, 3, None),
    ],
)
async def test_a_loop_that_hangs_or_fails_at_every_pass_is_unhealthy(
    body: Callable[[], Awaitable[None]], rounds: int, fault: str | None
) -> None:
    entered = 0

    async def record_pass() -> None:
        nonlocal entered
        entered += 1
        await body()

    loops = BackgroundTasks({"work": record_pass})
    while entered < rounds:
        await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match=fault) if fault else nullcontext():
        loops.check()
    await loops.stop()


async def test_a_loop_that_has_ended_is_unhealthy() -> None:
    started = BackgroundTasks({"work": waiting})
    await asyncio.sleep(0)
    await started.stop()
    with pytest.raises(RuntimeError, match="the work loop has ended"):
        started.check()
