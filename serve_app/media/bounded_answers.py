"""What an HTTP server that nobody vouches for may answer, and how much of the event loop reading it may take.

An answer's bytes are dear to read where they come in tiny pieces, or are no body: header fields, interim answers,
trailers. So both are bounded, and what is dear all the same is read in slices, between which others have their turn.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

import httpcore2
import httpx2

ROW_BYTES: Final = 16 * 1024
"""What may come in a row without any of a body in it: a head, the framing of chunks, trailers."""
FREE_PIECES: Final = 256
PIECE_BYTES: Final = 256
"""The average piece, as it is read or as a chunk, once there were `FREE_PIECES`."""
_SLICE_S: Final = 0.005
_HEAD_READ: Final = 4 * 1024
_BODY_READ: Final = 32 * 1024


class AnswerRefused(Exception):
    """The answer goes beyond these bounds; its connection is closed. The message is fit for the client's eyes."""


class LoopShare:
    """A slice of each turn of the event loop, for all readers together."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where a slice has begun."""
        self._began = 0.0

    async def wait(self) -> None:
        """Returns at once while the slice lasts, else in a later turn of the loop."""
        loop = asyncio.get_running_loop()
        while self._loop is loop and loop.time() - self._began > _SLICE_S:  # noqa: ASYNC110 - for a turn
            await asyncio.sleep(0)
        if self._loop is not loop:
            self._loop, self._began = loop, loop.time()
            loop.call_soon(self._end)

    def _end(self) -> None:
        self._loop = None


class _Pieces:
    """Of one answer."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def add(self, piece: bytes) -> None:
        """Raises AnswerRefused."""
        self._count += 1
        self._bytes += len(piece)
        if self._count > FREE_PIECES + self._bytes // PIECE_BYTES:
            raise AnswerRefused("its answer comes in too many tiny pieces")


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A connection whose answers are bounded. `BoundedBody` tells it what of them is body."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, share: LoopShare) -> None:
        self._inner = inner
        self.share = share
        self._expect_answer()

    def _expect_answer(self) -> None:
        self._reads = _Pieces()
        self._row = 0
        self._read_bytes = _HEAD_READ

    def body_came(self) -> None:
        self._row = 0
        self._read_bytes = _BODY_READ

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the base's name
        if self._row > ROW_BYTES:
            raise AnswerRefused(f"its answer has more than {ROW_BYTES // 1024} KiB of headers")
        part = await self._inner.read(min(max_bytes, self._read_bytes), timeout)
        self._reads.add(part)
        self._row += len(part)
        await self.share.wait()
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        self._expect_answer()  # each request has its own
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        return BoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self.share)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer that comes by `stream`."""

    def __init__(self, inner: httpx2.AsyncByteStream, stream: BoundedStream) -> None:
        self._inner = inner
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = _Pieces()
        async for chunk in self._inner:
            chunks.add(chunk)
            self._stream.body_came()
            await self._stream.share.wait()
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
