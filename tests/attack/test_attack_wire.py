"""Requests as they are written, and answers as they are read, against a server that says what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from attack.wire import Address, NoAnswer, Request, exchange

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@asynccontextmanager
async def saying(reply: bytes, *, reads: int = 1) -> AsyncIterator[tuple[Address, bytearray]]:
    """A server that takes so many bytes, answers and hangs up; and what it took."""
    taken = bytearray()
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while len(taken) < reads and (piece := await reader.read(2**16)):
                taken.extend(piece)
            writer.write(reply)
            await writer.drain()
        writer.close()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Address(*server.sockets[0].getsockname()[:2]), taken
        if taken:
            await over.wait()


async def test_a_request_is_written_as_it_is() -> None:
    request = Request("POST", "/x?é", b'{"a"', (("X-Odd", "\x01"),))
    async with saying(OK) as (address, taken):
        answer = await exchange(address, request, "secret", 5)
    assert (answer.status, answer.text) == (200, "hi")
    assert bytes(taken).startswith(f"POST /x?é HTTP/1.1\r\nHost: {address}\r\nx-key: secret\r\n".encode())
    assert b"X-Odd: \x01\r\nContent-Length: 4\r\n" in taken


async def test_a_wrong_length_is_told_as_it_is() -> None:
    async with saying(OK) as (address, taken):
        await exchange(address, Request("POST", "/", b"four", declared=("-1", "99")), "", 5)
    assert b"Content-Length: -1\r\nContent-Length: 99\r\n" in taken


def test_a_body_in_chunks() -> None:
    request = Request("POST", "/", b"abcdef", chunks=(1, 3))
    assert b"".join(request.pieces()) == b"1\r\na\r\n3\r\nbcd\r\n1\r\ne\r\n1\r\nf\r\n0\r\n\r\n"
    assert b"Transfer-Encoding: chunked" in request.head("", "x")
    assert b"Content-Length" not in request.head("", "x")


async def test_an_answer_counts_that_comes_before_the_body_is_written() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with saying(refusal) as (address, _):
        assert (await exchange(address, Request("POST", "/", bytes(20_000_000)), "", 5)).status == 413


async def test_100_continue_is_not_the_answer() -> None:
    async with saying(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as (address, _):
        assert (await exchange(address, Request("GET", "/"), "", 5)).status == 200


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async with saying(b"HTTP/1.1 200 OK\r\n\r\nall there is") as (address, _):
        assert (await exchange(address, Request("GET", "/"), "", 5)).text == "all there is"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"", "closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "closed without an answer"),
        (b"SSH-2.0\r\n", "no HTTP"),
    ],
)
async def test_what_is_no_answer(reply: bytes, why: str) -> None:
    async with saying(reply) as (address, _):
        with pytest.raises(NoAnswer, match=why):
            await exchange(address, Request("GET", "/"), "", 5)


async def test_nobody_listens() -> None:
    async with saying(OK) as (address, _):
        pass
    with pytest.raises(NoAnswer, match="broke"):
        await exchange(address, Request("GET", "/"), "", 5)


async def test_an_answer_that_does_not_come() -> None:
    async with saying(OK, reads=10**9) as (address, _):
        with pytest.raises(NoAnswer, match="within"):
            await exchange(address, Request("GET", "/"), "", 0.05)


def test_a_request_is_the_same_once_it_was_saved() -> None:
    request = Request("PUT", "/a", b"\xff\0", (("A", "b"),), declared=("1", "2"), chunks=(3,))
    assert Request.from_json(json.loads(json.dumps(request.as_json()))) == request
