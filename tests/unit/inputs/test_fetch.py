"""Fetches of URLs: their limits per owner and origin, and bounds on hostile responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpcore2
import httpx2
import pytest
from support.fetchers import fetcher, make_fetcher
from support.hostile_origin import hostile_origin
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


class Fetch:
    """Holds a slot until the test ends it."""

    def __init__(self, limiter: FetchLimiter, owner: str, origin: str) -> None:
        self.started = asyncio.Event()
        self.end = asyncio.Event()
        self.task = asyncio.create_task(self._run(limiter, owner, origin))

    async def _run(self, limiter: FetchLimiter, owner: str, origin: str) -> None:
        async with limiter.acquire(owner, origin):
            self.started.set()
            await self.end.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def fetches(limiter: FetchLimiter, *requests: tuple[str, str]) -> AsyncIterator[list[Fetch]]:
    running = [Fetch(limiter, owner, origin) for owner, origin in requests]
    await settle()
    yield running
    for each in running:
        each.task.cancel()


async def test_fetches_of_an_owner_wait_in_order() -> None:
    limiter = FetchLimiter(per_owner=2, per_origin=9)
    async with fetches(limiter, ("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")) as running:
        assert [each.started.is_set() for each in running] == [True, True, False, False]
        running[0].end.set()
        await settle()
        assert [each.started.is_set() for each in running] == [True, True, True, False]


async def test_owner_blocks_few_slots_of_an_origin() -> None:
    limiter = FetchLimiter(per_owner=2, per_origin=3)
    requests = [("a", "1")] * 50 + [("b", "1")] * 2 + [("c", "1")]
    async with fetches(limiter, *requests) as running:
        first_a, first_b, second_b, only_c = running[0], *running[-3:]
        assert first_b.started.is_set()
        assert not second_b.started.is_set()
        first_a.end.set()
        await settle()
        assert second_b.started.is_set()
        first_b.end.set()
        await settle()
        assert only_c.started.is_set()


async def test_cancelled_fetch_leaves_its_slot_to_others() -> None:
    limiter = FetchLimiter(per_owner=1, per_origin=1)
    async with fetches(limiter, ("a", "1"), ("a", "1"), ("a", "1")) as (running, waiting, last):
        waiting.task.cancel()
        running.task.cancel()
        await settle()
        assert last.started.is_set()


async def test_fetch_that_waits_too_long_is_refused() -> None:
    limiter = FetchLimiter(per_owner=1, max_wait_s=0.01)
    async with fetches(limiter, ("a", "1")):
        with pytest.raises(TooManyFetches):
            async with limiter.acquire("a", "2"):
                pass


async def test_waiting_for_a_slot_takes_no_time_of_the_url(web: Website) -> None:
    fetcher = make_fetcher(UrlGuard(["127.0.0.0/8"]), FetchLimiter(per_owner=1))
    web.set_page("/never", b"x", delay_s=PATIENCE_S)
    web.set_page("/cat", b"cat")
    both = [fetcher.fetch(web.url(path), "a", ImageLimits(timeout_s=0.5)) for path in ("/never", "/cat")]
    never, cat = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(never, BadImage)
    assert cat == b"cat"


async def test_redirect_frees_its_slot_for_the_target(web: Website) -> None:
    fetcher = make_fetcher(UrlGuard(["127.0.0.0/8"]), FetchLimiter(per_owner=1, per_origin=1, max_wait_s=PATIENCE_S))
    web.set_page("/old", status=302, location="/cat")
    web.set_page("/cat", b"cat")
    assert await fetcher.fetch(web.url("/old"), "a", ImageLimits()) == b"cat"


FETCHER = fetcher("127.0.0.0/8")

LONG = ImageLimits(timeout_s=PATIENCE_S)
LARGE_HEAD = "more than 16 KiB of headers"
TINY_PIECES = "too many tiny pieces"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("one-byte chunks", TINY_PIECES),
        ("a trickled head", TINY_PIECES),
        ("one header", LARGE_HEAD),
        ("interim answers", LARGE_HEAD),
        ("a chunk's extension", LARGE_HEAD),
        ("trailers", LARGE_HEAD),
        ("a trickled body", "sends less than 8 KiB a second"),
    ],
)
async def test_connection_of_a_costly_response_is_dropped(
    monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    if kind == "a trickled body":
        monkeypatch.setattr(fetch, "GRACE_S", 0.2)
    with hostile_origin(kind) as origin:
        with pytest.raises(BadImage, match=reason):
            await FETCHER.fetch(origin.url, "us", LONG)
        assert await asyncio.to_thread(origin.all_dropped.wait, PATIENCE_S)
        assert origin.connections == 1


async def test_time_limit_covers_all_redirects(web: Website) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.sleep(0.2)
        return ["127.0.0.1"]

    for n in range(1, 4):
        web.set_page(f"/{n}", status=302, location=web.url(f"/{n - 1}", host=f"h{n - 1}.test"))
    web.set_page("/0", b"x")
    url = web.url("/3", host="h3.test")
    with pytest.raises(BadImage, match=r"within 0\.5 s"):
        await fetcher("127.0.0.0/8", resolve=resolve).fetch(url, "us", ImageLimits(timeout_s=0.5))


class Wire(httpcore2.AsyncNetworkStream):
    """Returns one of `pieces` per read, and counts them."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.read_pieces = 0
        self.requested_bytes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the base's name
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


async def read_on(bounded: BoundedStream, after_each: Callable[[], None] = lambda: None) -> None:
    while True:
        await bounded.read(65536)
        after_each()


async def test_tiny_chunks_are_read_up_to_their_bound() -> None:
    chunks = Chunks(*[b"x"] * 10 * FREE_CHUNKS)
    with pytest.raises(ResponseRejected, match=TINY_PIECES):
        async for _ in BoundedBody(chunks, BoundedStream(Wire(), TimeSlice())):
            pass
    # One byte each, so that the bytes earn next to no further pieces.
    assert FREE_CHUNKS < chunks.read <= FREE_CHUNKS + 2


async def test_tiny_segments_are_read_up_to_their_bound() -> None:
    wire = Wire(*[b"x"] * 10 * FREE_CHUNKS)
    bounded = BoundedStream(wire, TimeSlice())
    with pytest.raises(ResponseRejected, match=TINY_PIECES):
        await read_on(bounded, bounded.on_body_received)
    assert FREE_CHUNKS < wire.read_pieces <= FREE_CHUNKS + 2


async def test_headers_are_read_in_small_parts_up_to_their_bound() -> None:
    wire = Wire(*[bytes(4096)] * 10)
    with pytest.raises(ResponseRejected, match=LARGE_HEAD):
        await read_on(BoundedStream(wire, TimeSlice()))
    assert wire.read_pieces == HEAD_BYTES // 4096 + 1
    assert wire.requested_bytes == 4096


async def test_each_response_of_a_connection_is_bounded_anew() -> None:
    bounded = BoundedStream(Wire(*[bytes(4096)] * 10), TimeSlice())
    for _ in range(10):
        await bounded.write(b"GET / HTTP/1.1")
        await bounded.read(65536)


async def test_readers_beyond_the_slice_wait_for_the_next_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    time_slice, order = TimeSlice(), list[str]()
    monkeypatch.setattr(bounded_response, "_SLICE_S", -1.0)  # over at once

    async def reader() -> None:
        await time_slice.wait()
        order.append("reader")

    readers = [asyncio.create_task(reader()) for _ in range(3)]
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
