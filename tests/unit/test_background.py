"""A replica whose loop hangs, or does nothing but fail, is unhealthy; one that waits for work is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from serve_app import background
from serve_app.background import Loops, idle


class Noted:
    """A loop that tells when it has come round a few times."""

    def __init__(self, body: Callable[[], Awaitable[None]]) -> None:
        self._body = body
        self._rounds = 0
        self.came_round = asyncio.Event()

    async def __call__(self) -> None:
        self._rounds += 1
        if self._rounds == 3:
            self.came_round.set()
        await self._body()


@asynccontextmanager
async def running(body: Callable[[], Awaitable[None]]) -> AsyncIterator[tuple[Loops, Noted]]:
    noted = Noted(body)
    started = Loops({"work": noted})
    try:
        yield started, noted
    finally:
        await started.stop()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FAILS_S", 0.0)
    monkeypatch.setattr(background, "HANGS_S", 0.0)
    monkeypatch.setattr(background, "_PAUSE_S", 0.001)


async def test_a_loop_that_fails_at_every_pass_is_unhealthy() -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    async with running(broken) as (started, noted):
        await noted.came_round.wait()
        with pytest.raises(RuntimeError, match=r"the work loop has failed \d+ times in a row"):
            started.check()


async def test_a_loop_that_hangs_is_unhealthy() -> None:
    entered = asyncio.Event()

    async def stuck() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with running(stuck) as (started, _):
        await entered.wait()
        with pytest.raises(RuntimeError, match="the work loop hangs"):
            started.check()


async def test_a_loop_that_waits_for_work_is_healthy() -> None:
    entered = asyncio.Event()

    async def waiting() -> None:
        with idle():
            entered.set()
            await asyncio.Event().wait()

    async with running(waiting) as (started, _):
        await entered.wait()
        started.check()


async def test_while_redis_is_away_no_loop_is_unhealthy() -> None:
    async def away() -> None:
        raise RedisConnectionError

    async with running(away) as (started, noted):
        await noted.came_round.wait()
        await asyncio.sleep(0)
        started.check()


async def test_a_loop_that_has_ended_is_unhealthy() -> None:
    async def waiting() -> None:
        await asyncio.Event().wait()

    started = Loops({"work": waiting})
    await asyncio.sleep(0)
    await started.stop()
    with pytest.raises(RuntimeError, match="the work loop has ended"):
        started.check()
