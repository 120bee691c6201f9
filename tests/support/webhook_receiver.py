"""A webhook destination on a real socket that answers as a test scripts it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

Behaviour: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes to the connection in place of an HTTP response."""
Reply: TypeAlias = bytes | Behaviour


def http_response(status: int = 204, body: bytes = b"", **headers: str) -> bytes:
    """Returns a whole response; `_` in a header's name stands for `-`."""
    fields = {"content-length": str(len(body)), "connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class WebhookReceiver:
    def __init__(self) -> None:
        self.port = 0
        self.received: list[Received] = []
        """All calls in the order of arrival, answered or not."""
        self.reply: Reply = http_response(204)
        """Answer to calls after `replies` are used up."""
        self.replies: list[Reply] = []
        """Answers to the next calls, one each."""
        self.connections = 0
        self.busy = 0
        self.busiest = 0
        """Highest number of calls at a time."""
        self.dropped = asyncio.Event()
        """Set once the sender hangs up before the end of a response."""
        self._resumed = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def ids(self) -> list[str]:
        return [call.id for call in self.received]

    async def hang(self, writer: asyncio.StreamWriter) -> None:
        """Answers after `resume`."""
        await self._resumed.wait()
        writer.write(http_response(204))

    def reply_to(self, call: Received) -> Reply:
        return self.replies.pop(0) if self.replies else self.reply

    def resume(self) -> None:
        self._resumed.set()

    async def has(self, n: int) -> None:
        """Returns once `n` calls have arrived."""
        async with asyncio.timeout(60):
            while len(self.received) < n:
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # `close` cancels calls, but must not cancel the server's own tasks.
        call = asyncio.create_task(self._answer(reader, writer))
        self._calls.add(call)
        self.connections += 1
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await asyncio.wait([call])
        self.busy -= 1
        self._calls.discard(call)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.received.append(call := await _read(reader))
            reply = self.reply_to(call)
            if callable(reply):
                await reply(writer)
            else:
                writer.write(reply)
            await writer.drain()
        except ConnectionError:
            self.dropped.set()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def cut_off(writer: asyncio.StreamWriter) -> None:
    """Closes the connection in the middle of the response."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")


async def stream_forever(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        await writer.drain()


async def never_answer(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def stall_after_head(writer: asyncio.StreamWriter) -> None:
    """Promises a body and never sends it."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
    await writer.drain()
    await asyncio.Event().wait()


async def _read(reader: asyncio.StreamReader) -> Received:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    method, path, _ = head.split()
    assert method == "POST"
    return Received(path, headers, body)


@asynccontextmanager
async def receiving(
    address: str = "127.0.0.1", destination: WebhookReceiver | None = None
) -> AsyncIterator[WebhookReceiver]:
    destination = destination or WebhookReceiver()
    server = await asyncio.start_server(destination.serve, address, 0)
    destination.port = server.sockets[0].getsockname()[1]
    try:
        yield destination
    finally:
        server.close()
        await destination.close()
        await server.wait_closed()
