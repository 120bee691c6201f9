"""Connections that take their time: heads and bodies byte by byte, silence, answers that nobody reads.

They stop nobody else, which the bystander shows; and a proxy ends those that send too little for too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from attack.attacks import Play
from attack.stage import Stage
from attack.wire import Request

Manner: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Stage], Awaitable[None]]
"""What one connection does, for ever; it returns, or raises OSError, once the service has ended the connection."""

ENDED_S: Final = 75.0
"""Within which a proxy must have ended them."""
_HELD_S: Final = 3.0
"""How long they last where there is no proxy to end them."""
_STEP_S: Final = 1.0
_AT_ONCE: Final = 100
"""Connections opened at a time; more would wait in the listener's queue."""
_BODY: Final = Request("POST", "/v1/gen-3-image-klein", b"x" * 50_000, (("Content-Type", "application/json"),))
_LARGE: Final = Request("GET", "/openapi.json")


def attacks(repository: Path, seed: int, count: int) -> Sequence[Play]:
    """As many connections of each manner, all at the same time."""
    each = max(1, count // len(_MANNERS))
    return [
        Play(f"{each} connections: {name}", _acting(manner, each, ends=ends), each) for name, manner, ends in _MANNERS
    ]


def _acting(manner: Manner, number: int, *, ends: bool) -> Callable[[Stage], Awaitable[Sequence[str]]]:
    async def act(stage: Stage) -> Sequence[str]:
        _open_as_many_files_as_may_be()
        opening = asyncio.Semaphore(_AT_ONCE)
        held = [asyncio.create_task(_one(manner, stage, opening)) for _ in range(number)]
        judged = ends and stage.proxied
        _, left = await asyncio.wait(held, timeout=ENDED_S if judged else _HELD_S)
        for connection in held:
            connection.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        return [f"{len(left)} of {number} connections still open after {ENDED_S:g} s"] if judged and left else []

    return act


async def _one(manner: Manner, stage: Stage, opening: asyncio.Semaphore) -> None:
    with contextlib.suppress(OSError):
        async with opening:
            reader, writer = await asyncio.open_connection(stage.address.host, stage.address.port)
        try:
            await manner(reader, writer, stage)
        finally:
            writer.transport.abort()


async def _trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: Iterator[bytes]) -> None:
    for piece in data:
        writer.write(piece)
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STEP_S):
                while await reader.read(4096):
                    pass
                return


async def _head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stage: Stage) -> None:
    head = _LARGE.head("", str(stage.address))[:-2]
    await _trickle(reader, writer, (head[at : at + 1] if at < len(head) else b"X-More: 1\r\n" for at in range(10**6)))


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stage: Stage) -> None:
    writer.write(_BODY.head(stage.key(), str(stage.address)))
    await _trickle(reader, writer, (b" " for _ in range(len(_BODY.body))))


async def _silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stage: Stage) -> None:
    while await reader.read(4096):
        pass


async def _idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stage: Stage) -> None:
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {stage.address}\r\n\r\n".encode())
    await _silence(reader, writer, stage)


async def _unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stage: Stage) -> None:
    request = _LARGE.head("", str(stage.address)).replace(b"Connection: close", b"Connection: keep-alive")
    reader._transport.pause_reading()  # type: ignore[attr-defined]  # streams would read it all the same
    writer.write(request * 20)
    await asyncio.Event().wait()


_MANNERS: Final[tuple[tuple[str, Manner, bool], ...]] = (
    ("a head byte by byte", _head, True),
    ("a body byte by byte", _body, True),
    ("not a word", _silence, True),
    ("idle after an answer", _idle, True),
    ("answers that are not read", _unread, False),
)
"""With whether the service can tell that it is to end them."""


def _open_as_many_files_as_may_be() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
