"""Fetching keys has limits of time and size, whatever the server sends."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import pytest
from support.issuer import KEY

from serve_app.accounts import jwt_auth
from serve_app.accounts.jwt_auth import IssuerUnreachable, fetch_keys

Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DOCUMENT = json.dumps({"keys": [KEY.public_jwk()]}).encode()
PATIENCE_S = 60


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """Yields the URL of a server that answers every request with `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"
    finally:
        server.close()


def raw(content: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await writer.drain()

    return answer


def whole(body: bytes, head: bytes = HEAD) -> Answer:
    return raw(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def trickling(head: bytes, piece: bytes) -> Answer:
    """Sends small pieces forever."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)

    return answer


async def test_key_set_is_fetched() -> None:
    async with answering(whole(DOCUMENT)) as url:
        assert await fetch_keys(url) == json.loads(DOCUMENT)


@pytest.mark.parametrize("head", [CHUNKED, HEAD + b"Content-Length: 1000000000\r\n\r\n"], ids=["chunked", "declared"])
async def test_endless_response_is_read_up_to_the_size_limit(head: bytes) -> None:
    size = 0
    piece = b" " * 65_536

    async def answer(writer: asyncio.StreamWriter) -> None:
        nonlocal size
        writer.write(head)
        while size < 100 * 2**20:
            writer.write(b"10000\r\n" + piece + b"\r\n" if head is CHUNKED else piece)
            await writer.drain()
            size += len(piece)

    async with asyncio.timeout(PATIENCE_S), answering(answer) as url:
        with pytest.raises(IssuerUnreachable):
            await fetch_keys(url)
    assert size < 32 * 2**20, "some of it is in the buffers of the sockets"


async def test_compressed_response_is_not_decompressed() -> None:
    packed = gzip.compress(DOCUMENT[:-1] + b" " * 100_000_000 + b"}")
    async with asyncio.timeout(PATIENCE_S), answering(whole(packed, HEAD + b"Content-Encoding: gzip\r\n")) as url:
        with pytest.raises(IssuerUnreachable):
            await fetch_keys(url)


BAD: dict[str, Answer] = {
    "silent": trickling(b"", b""),
    "trickling body": trickling(CHUNKED, b"1\r\n \r\n"),
    "trickling head": trickling(HEAD, b"x-more: 1\r\n"),
    **{f"body {body[:9]}": whole(body) for body in (b"", b"null", b'"keys"', b"\xff\xfe", b"[" * 100_000)},
    **{f"line {line[:9]}": raw(line) for line in (b"", b"\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/9.9 999\r\n\r\n")},
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
async def test_invalid_or_slow_response_means_unreachable(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_auth, "_TIMEOUT_S", 0.3)
    async with asyncio.timeout(PATIENCE_S), answering(answer) as url:
        with pytest.raises(IssuerUnreachable):
            await fetch_keys(url)
