"""Fetches beyond what there may be at a time wait for those before them, and not for another organization's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from support.fetching import fetcher_of
from support.website import Website

from serve_app.inputs.fetch import FetchTurns, TooManyFetches
from serve_app.inputs.settings import BadPicture, PictureLimits
from serve_app.inputs.url_guard import UrlGuard

PATIENCE_S = 60.0
T = TypeVar("T")


async def soon(done: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await done


class Fetch:
    """One that lasts until it is told to end."""

    def __init__(self, turns: FetchTurns, owner: str, origin: str) -> None:
        self.begun = asyncio.Event()
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._run(turns, owner, origin))

    async def _run(self, turns: FetchTurns, owner: str, origin: str) -> None:
        async with turns.taken(owner, origin):
            self.begun.set()
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await soon(self._task)

    def break_off(self) -> None:
        self._task.cancel()


async def settled() -> None:
    """Until all who could go on have."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def fetches(turns: FetchTurns, *of: tuple[str, str]) -> AsyncIterator[list[Fetch]]:
    running = [Fetch(turns, owner, origin) for owner, origin in of]
    await settled()
    yield running
    for each in running:
        each.break_off()


async def test_an_owner_waits_for_itself_in_the_order_of_coming() -> None:
    turns = FetchTurns(per_owner=2, per_origin=9)
    async with fetches(turns, ("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")) as (first, _, third, fourth):
        assert not third.begun.is_set()
        await first.end()
        await soon(third.begun.wait())
        await settled()
        assert not fourth.begun.is_set()


async def test_no_owner_waits_for_another() -> None:
    turns = FetchTurns(per_owner=2, per_origin=9)
    async with fetches(turns, *[("a", "slow")] * 50, ("b", "other"), ("b", "slow")) as (*_, other, slow):
        assert other.begun.is_set()
        assert slow.begun.is_set()


async def test_at_an_origin_no_more_than_an_owners_turns_wait_before_another() -> None:
    turns = FetchTurns(per_owner=2, per_origin=3)
    many = [("a", "1")] * 50 + [("b", "1")] * 2 + [("c", "1")]
    async with fetches(turns, *many) as running:
        first_of_a, first_of_b, second_of_b, of_c = running[0], *running[-3:]
        assert first_of_b.begun.is_set()
        assert not second_of_b.begun.is_set()
        await first_of_a.end()
        await soon(second_of_b.begun.wait())
        await first_of_b.end()
        await soon(of_c.begun.wait())


async def test_who_breaks_off_leaves_the_turn_to_others() -> None:
    turns = FetchTurns(per_owner=1, per_origin=1)
    async with fetches(turns, ("a", "1"), ("a", "1"), ("a", "1")) as (running, waiting, last):
        waiting.break_off()
        running.break_off()
        await soon(last.begun.wait())


async def test_who_waits_too_long_is_told_so() -> None:
    turns = FetchTurns(per_owner=1, patience_s=0.01)
    async with fetches(turns, ("a", "1")):
        with pytest.raises(TooManyFetches):
            async with turns.taken("a", "2"):
                pass


async def test_waiting_is_no_part_of_the_time_that_a_url_may_take(web: Website) -> None:
    turns = FetchTurns(per_owner=1)
    fetcher = fetcher_of(UrlGuard(["127.0.0.0/8"]), turns)
    web.put("/never", b"x", delay_s=PATIENCE_S)
    web.put("/cat", b"cat")
    limits = PictureLimits(timeout_s=0.5)
    both = [fetcher.fetch(web.url(path), "a", limits) for path in ("/never", "/cat")]
    never, cat = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(never, BadPicture)
    assert cat == b"cat"


async def test_a_redirects_target_has_a_turn_of_its_own(web: Website) -> None:
    """Also where there is one turn only: that of the page before is over."""
    turns = FetchTurns(per_owner=1, per_origin=1, patience_s=PATIENCE_S)
    web.put("/old", status=302, location="/cat")
    web.put("/cat", b"cat")
    fetcher = fetcher_of(UrlGuard(["127.0.0.0/8"]), turns)
    assert await soon(fetcher.fetch(web.url("/old"), "a", PictureLimits())) == b"cat"
