"""Health of background loops: a loop that hangs or always fails is unhealthy, an idle one is healthy."""

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


async def fail() -> None:
    raise ValueError("a bug")


async def hang() -> None:
    await asyncio.Event().wait()


async def wait_for_work() -> None:
    with idle():
        await asyncio.Event().wait()


async def cancel() -> None:
    raise asyncio.CancelledError


async def lose_redis() -> None:
    raise RedisConnectionError


@pytest.mark.parametrize(
    ("body", "rounds", "fault"),
    [
        (fail, 3, r"the work loop has failed \d+ times in a row"),
        (cancel, 3, r"the work loop has failed \d+ times in a row"),
        (hang, 1, "the work loop hangs"),
        (wait_for_work, 1, None),
        (lose_redis, 3, None),
    ],
)
async def test_loop_that_hangs_or_always_fails_is_unhealthy(
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


async def test_ended_loop_is_unhealthy() -> None:
    started = BackgroundTasks({"work": wait_for_work})
    await asyncio.sleep(0)
    await started.stop()
    with pytest.raises(RuntimeError, match="the work loop has ended"):
        started.check()
