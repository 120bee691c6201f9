"""A request byte for byte as it is written, over a connection of its own, and the answer to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final

import httptools

_MOST_BYTES: Final = 64 * 2**20
"""Of an answer; the rest is not read."""
_PIECE: Final = 256 * 1024
_OK: Final = 200


class NoAnswer(Exception):
    """The connection ended, or time was up, before there was a whole answer."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Request:
    """`target` stands on the request line as it is; `key` is sent as `x-key` unless it is empty."""

    method: str
    target: str
    body: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    declared: tuple[str, ...] | None = None
    """Values of Content-Length headers; None for one that tells the truth."""
    chunks: tuple[int, ...] = ()
    """Sizes of chunks, over and over, in place of Content-Length."""

    def head(self, key: str, host: str) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        given = {name.lower() for name, _ in self.headers}
        if "host" not in given:
            lines.append(f"Host: {host}")
        if key and "x-key" not in given:
            lines.append(f"x-key: {key}")
        lines += [f"{name}: {value}" for name, value in (*self.headers, *self._framing())]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "surrogateescape")

    def pieces(self) -> Iterator[bytes]:
        """The body as it is written."""
        if not self.chunks:
            yield from (self.body[at : at + _PIECE] for at in range(0, len(self.body), _PIECE))
            return
        at, piece = 0, b""
        for size in cycle(self.chunks):
            if at >= len(self.body):
                break
            chunk = self.body[at : at + size]
            piece += b"%x\r\n%b\r\n" % (len(chunk), chunk)
            at += size
            if len(piece) > _PIECE:
                yield piece
                piece = b""
        yield piece + b"0\r\n\r\n"

    def _framing(self) -> list[tuple[str, str]]:
        chunked = [("Transfer-Encoding", "chunked")] if self.chunks else []
        if self.declared is None:
            bare = self.chunks or (not self.body and self.method in ("GET", "DELETE"))
            return chunked if bare else [("Content-Length", str(len(self.body)))]
        return [*chunked, *(("Content-Length", length) for length in self.declared)]

    def as_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "target": self.target,
            "body": base64.b64encode(self.body).decode(),
            "headers": [list(header) for header in self.headers],
            "declared": None if self.declared is None else list(self.declared),
            "chunks": list(self.chunks),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Request:
        return cls(
            saved["method"],
            saved["target"],
            base64.b64decode(saved["body"]),
            tuple((name, value) for name, value in saved["headers"]),
            None if saved["declared"] is None else tuple(saved["declared"]),
            tuple(saved["chunks"]),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = field(repr=False)
    took_s: float

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


async def exchange(address: Address, request: Request, key: str, limit_s: float) -> Answer:
    """The answer to the request. Raises NoAnswer."""
    began = time.monotonic()
    # A bare socket: streams forget what has arrived as soon as they can't write any more.
    with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as connection:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.get_running_loop().sock_connect(connection, (address.host, address.port))
                # An answer may come before all is written; writing is over then.
                writing = asyncio.create_task(_write(connection, request.head(key, str(address)), request))
                try:
                    status, headers, body = await _read(connection)
                finally:
                    writing.cancel()
                    await asyncio.gather(writing, return_exceptions=True)
        except TimeoutError:
            raise NoAnswer(f"no answer within {limit_s:g} s") from None
        except OSError as problem:
            raise NoAnswer(f"the connection broke: {type(problem).__name__}") from None
    return Answer(status, headers, body, time.monotonic() - began)


async def _write(connection: socket.socket, head: bytes, request: Request) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        await loop.sock_sendall(connection, head)
        for piece in request.pieces():
            await loop.sock_sendall(connection, piece)
        if request.declared is not None:
            connection.shutdown(socket.SHUT_WR)  # else both sides would wait for what was declared and never comes


class _Parsed:
    """What httptools calls back."""

    parser: httptools.HttpResponseParser

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() >= _OK:
            self.whole = True
        else:  # 100 Continue: the answer is yet to come
            self.headers.clear()


async def _read(connection: socket.socket) -> tuple[int, Mapping[str, str], bytes]:
    parsed = _Parsed()
    parser = parsed.parser = httptools.HttpResponseParser(parsed)
    while not parsed.whole and len(parsed.body) < _MOST_BYTES:
        data = await asyncio.get_running_loop().sock_recv(connection, _PIECE)
        if not data:
            status = parser.get_status_code()
            if status and {"content-length", "transfer-encoding"}.isdisjoint(parsed.headers):
                break  # as long as the connection
            raise NoAnswer("the connection was closed without an answer")
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as problem:
            raise NoAnswer(f"the answer is no HTTP: {problem}") from None
    return parser.get_status_code(), parsed.headers, bytes(parsed.body)
