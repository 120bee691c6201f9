"""Fetches beyond what there may be at a time wait for those before them, and not for another organization's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpcore2
import httpx2
import pytest
from support.fetchers import fetcher, make_fetcher
from support.hostile_origin import HOSTILITIES, hostile_origin
from support.website import Website

from serve_app.inputs import bounded_response, fetch
from serve_app.inputs.bounded_response import (
    FREE_CHUNKS,
    HEAD_BYTES,
    BoundedBody,
    BoundedStream,
    ResponseRejected,
    TimeSlice,
)
from serve_app.inputs.fetch import FetchLimiter, TooManyFetches
from serve_app.inputs.settings import BadImage, ImageLimits
from serve_app.inputs.ssrf import UrlGuard

PATIENCE_S = 60.0
T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


class Fetch:
    """One that lasts until it is told to end."""

    def __init__(self, limiter: FetchLimiter, owner: str, origin: str) -> None:
        self.started = asyncio.Event()
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._run(limiter, owner, origin))

    async def _run(self, limiter: FetchLimiter, owner: str, origin: str) -> None:
        async with limiter.acquire(owner, origin):
            self.started.set()
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await soon(self._task)

    def break_off(self) -> None:
        self._task.cancel()


async def settle() -> None:
    """Until all who could go on have."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def fetches(limiter: FetchLimiter, *requests: tuple[str, str]) -> AsyncIterator[list[Fetch]]:
    running = [Fetch(limiter, owner, origin) for owner, origin in requests]
    await settle()
    yield running
    for each in running:
        each.break_off()


async def test_an_owner_waits_for_itself_in_the_order_of_coming() -> None:
    limiter = FetchLimiter(per_owner=2, per_origin=9)
    async with fetches(limiter, ("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")) as (first, _, third, fourth):
        assert not third.started.is_set()
        await first.end()
        await soon(third.started.wait())
        await settle()
        assert not fourth.started.is_set()


async def test_at_an_origin_no_more_than_an_owners_turns_wait_before_another() -> None:
    limiter = FetchLimiter(per_owner=2, per_origin=3)
    many = [("a", "1")] * 50 + [("b", "1")] * 2 + [("c", "1")]
    async with fetches(limiter, *many) as running:
        first_a, first_b, second_b, only_c = running[0], *running[-3:]
        assert first_b.started.is_set()
        assert not second_b.started.is_set()
        await first_a.end()
        await soon(second_b.started.wait())
        await first_b.end()
        await soon(only_c.started.wait())


async def test_who_breaks_off_leaves_the_turn_to_others() -> None:
    limiter = FetchLimiter(per_owner=1, per_origin=1)
    async with fetches(limiter, ("a", "1"), ("a", "1"), ("a", "1")) as (running, waiting, last):
        waiting.break_off()
        running.break_off()
        await soon(last.started.wait())


async def test_who_waits_too_long_is_told_so() -> None:
    limiter = FetchLimiter(per_owner=1, max_wait_s=0.01)
    async with fetches(limiter, ("a", "1")):
        with pytest.raises(TooManyFetches):
            async with limiter.acquire("a", "2"):
                pass


async def test_waiting_is_no_part_of_the_time_that_a_url_may_take(web: Website) -> None:
    limiter = FetchLimiter(per_owner=1)
    fetcher = make_fetcher(UrlGuard(["127.0.0.0/8"]), limiter)
    web.set_page("/never", b"x", delay_s=PATIENCE_S)
    web.set_page("/cat", b"cat")
    limits = ImageLimits(timeout_s=0.5)
    both = [fetcher.fetch(web.url(path), "a", limits) for path in ("/never", "/cat")]
    never, cat = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(never, BadImage)
    assert cat == b"cat"


async def test_a_redirects_target_has_a_turn_of_its_own(web: Website) -> None:
    """Also where there is one turn only: that of the page before is over."""
    limiter = FetchLimiter(per_owner=1, per_origin=1, max_wait_s=PATIENCE_S)
    web.set_page("/old", status=302, location="/cat")
    web.set_page("/cat", b"cat")
    fetcher = make_fetcher(UrlGuard(["127.0.0.0/8"]), limiter)
    assert await soon(fetcher.fetch(web.url("/old"), "a", ImageLimits())) == b"cat"


FETCHER = fetcher("127.0.0.0/8")

LONG = ImageLimits(timeout_s=PATIENCE_S)
TOO_LARGE_A_HEAD = "more than 16 KiB of headers"
TOO_MANY_PIECES = "too many tiny pieces"
REASONS = {"one-byte chunks": TOO_MANY_PIECES, "a trickled head": TOO_MANY_PIECES}


@pytest.mark.parametrize("kind", sorted(set(HOSTILITIES) - {"a trickled body", "one-byte segments"}))
async def test_what_is_dear_to_read_is_dropped(kind: str) -> None:
    with hostile_origin(kind) as origin:
        with pytest.raises(BadImage, match=f"refused: .*{REASONS.get(kind, TOO_LARGE_A_HEAD)}"):
            await FETCHER.fetch(origin.url, "us", LONG)
        assert await asyncio.to_thread(origin.all_dropped.wait, PATIENCE_S)
        assert origin.connections == 1


async def test_a_trickled_body_is_dropped_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "GRACE_S", 0.2)
    with hostile_origin("a trickled body") as origin:
        with pytest.raises(BadImage, match="sends less than 8 KiB a second"):
            await FETCHER.fetch(origin.url, "us", LONG)
        assert await asyncio.to_thread(origin.all_dropped.wait, PATIENCE_S)


async def test_the_time_counts_over_all_redirects(web: Website) -> None:
    for n in range(1, 4):
        web.set_page(f"/{n}", status=302, location=f"/{n - 1}", content_length="5", delay_s=PATIENCE_S)
    web.set_page("/0", b"x", delay_s=PATIENCE_S)
    with pytest.raises(BadImage, match=r"within 0\.3 s"):
        await FETCHER.fetch(web.url("/3"), "us", ImageLimits(timeout_s=0.3))


class Wire(httpcore2.AsyncNetworkStream):
    """Hands out `pieces`, and counts them."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.read_pieces = 0
        self.requested_bytes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as the base has it
        self.read_pieces += 1
        self.requested_bytes = max_bytes
        return self._pieces.pop(0)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        pass


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            self.read += 1
            yield chunk


def stream(*pieces: bytes) -> BoundedStream:
    return BoundedStream(Wire(*pieces), TimeSlice())


async def read_on(bounded: BoundedStream, after_each: Callable[[], None] = lambda: None) -> None:
    while True:
        await bounded.read(65536)
        after_each()


async def test_tiny_chunks_are_read_up_to_their_bound() -> None:
    chunks = Chunks(*[b"x"] * 10 * FREE_CHUNKS)
    with pytest.raises(ResponseRejected, match=TOO_MANY_PIECES):
        async for _ in BoundedBody(chunks, stream()):
            pass
    # One byte each, so that the bytes earn next to no further pieces.
    assert FREE_CHUNKS < chunks.read <= FREE_CHUNKS + 2


async def test_tiny_segments_are_read_up_to_their_bound() -> None:
    wire = Wire(*[b"x"] * 10 * FREE_CHUNKS)
    bounded = BoundedStream(wire, TimeSlice())
    with pytest.raises(ResponseRejected, match=TOO_MANY_PIECES):
        await read_on(bounded, bounded.on_body_received)
    assert FREE_CHUNKS < wire.read_pieces <= FREE_CHUNKS + 2


async def test_no_more_than_a_row_of_headers_is_read() -> None:
    wire = Wire(*[bytes(4096)] * 10)
    bounded = BoundedStream(wire, TimeSlice())
    with pytest.raises(ResponseRejected, match=TOO_LARGE_A_HEAD):
        await read_on(bounded)
    assert wire.read_pieces == HEAD_BYTES // 4096 + 1
    assert wire.requested_bytes == 4096, "what is dear to read is read in small parts"


async def test_each_answer_of_a_connection_is_bounded_anew() -> None:
    bounded = stream(*[bytes(4096)] * 10)
    for _ in range(10):
        await bounded.write(b"GET / HTTP/1.1")
        await bounded.read(65536)


async def test_readers_share_a_slice_of_the_loops_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn that takes readers beyond the slice is followed by one of everybody else's."""
    time_slice, order = TimeSlice(), list[str]()
    monkeypatch.setattr(bounded_response, "_SLICE_S", -1.0)  # over as soon as it has begun

    async def reader(n: int) -> None:
        await time_slice.wait()
        order.append("reader")

    readers = [asyncio.create_task(reader(n)) for n in range(3)]
    while not all(each.done() for each in readers):
        order.append("turn")
        await asyncio.sleep(0)
    assert order.count("reader") == 3
    assert "reader reader" not in " ".join(order)


async def test_readers_within_the_slice_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_response, "_SLICE_S", float("inf"))
    time_slice = TimeSlice()
    waiting = [time_slice.wait() for _ in range(3)]
    for each in waiting:
        with pytest.raises(StopIteration):
            each.send(None)
