"""The attackers' own web server: at one address the service may reach it, at all others no request must ever arrive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

OPEN_HOST: Final = "127.0.0.2"
"""The one address on the loopback interface that the service's guard is told to let through."""
_CLOSED_HOSTS: Final = ("127.0.0.1", "::1")


@dataclass(slots=True)
class Origin:
    port: int = 0
    hits: list[str] = field(default_factory=list)
    """What arrived at an address that is closed to the service: the first line of each connection."""

    def take_hits(self) -> list[str]:
        """Those that nobody has taken yet."""
        taken, self.hits = self.hits, []
        return taken

    def open_url(self, path: str) -> str:
        """An address that the service may ask, and that answers with nothing."""
        return f"http://{OPEN_HOST}:{self.port}/200/{path}"

    def redirect_to(self, url: str, status: int = 302) -> str:
        """The open address of a redirect to `url`."""
        return f"http://{OPEN_HOST}:{self.port}/{status}/{url}"


@asynccontextmanager
async def listening() -> AsyncIterator[Origin]:
    origin = Origin()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            if writer.get_extra_info("sockname")[0] != OPEN_HOST:
                origin.hits.append((await reader.readline()).decode(errors="replace").strip() or "a connection")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                _, path, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                status, _, target = unquote(path.decode()).removeprefix("/").partition("/")
                head = (
                    f"HTTP/1.1 {status} Moved\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode())
            await writer.drain()
        writer.close()

    opened = await asyncio.start_server(answer, OPEN_HOST, 0)
    origin.port = opened.sockets[0].getsockname()[1]
    closed = [await asyncio.start_server(answer, host, origin.port) for host in _CLOSED_HOSTS]
    try:
        yield origin
    finally:
        for server in (opened, *closed):
            server.close()
