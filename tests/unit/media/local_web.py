"""A real HTTP server on the loopback interface that answers as it is told and counts what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Answer:
    body: bytes = b"ok"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    """Wait between the head and the body."""


class LocalWeb:
    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.asked.append(path)
            answer = self.answers.get(path, Answer())
            headers = {"connection": "close", "content-length": str(len(answer.body)), **answer.headers}
            lines = [f"HTTP/1.1 {answer.status} Told", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(answer.delay_s)
            writer.write(answer.body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[LocalWeb]:
    web = LocalWeb()
    server = await asyncio.start_server(web.handle, "127.0.0.1", 0)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        await server.wait_closed()
