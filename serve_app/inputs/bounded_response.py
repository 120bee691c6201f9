"""Bounds on the HTTP responses of hosts that clients name: header bytes, number of chunks, time in the event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

import httpcore2
import httpx2

HEAD_BYTES: Final = 16 * 1024
"""Maximum of consecutive bytes without any of a body: headers, chunk framing, trailers."""
FREE_CHUNKS: Final = 256
MIN_CHUNK_BYTES: Final = 256
"""Minimum average size of chunks, once there were `FREE_CHUNKS`."""
_SLICE_S: Final = 0.005
_HEAD_READ: Final = 4 * 1024
_BODY_READ: Final = 32 * 1024


class ResponseRejected(Exception):
    """The response exceeds a bound, so its connection is closed. Clients may read the message."""


class TimeSlice:
    """The part of each iteration of the event loop that all readers of responses share."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        """Loop in which a slice has started."""
        self._started_at = 0.0

    async def wait(self) -> None:
        """Returns at once while the slice lasts, else in a later iteration of the loop."""
        loop = asyncio.get_running_loop()
        while self._loop is loop and loop.time() - self._started_at > _SLICE_S:  # noqa: ASYNC110 - one iteration
            await asyncio.sleep(0)
        if self._loop is not loop:
            self._loop, self._started_at = loop, loop.time()
            loop.call_soon(self._end)

    def _end(self) -> None:
        self._loop = None


class _ChunkCounter:
    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def add(self, chunk: bytes) -> None:
        """Raises ResponseRejected."""
        self._count += 1
        self._bytes += len(chunk)
        if self._count > FREE_CHUNKS + self._bytes // MIN_CHUNK_BYTES:
            raise ResponseRejected("its answer comes in too many tiny pieces")


class BoundedStream(httpcore2.AsyncNetworkStream):
    """Connection whose responses are bounded. `BoundedBody` reports the parts of the body to it."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, time_slice: TimeSlice) -> None:
        self._inner = inner
        self.time_slice = time_slice
        self._expect_response()

    def _expect_response(self) -> None:
        self._reads = _ChunkCounter()
        self._head_size = 0
        self._read_bytes = _HEAD_READ

    def on_body_received(self) -> None:
        self._head_size = 0
        self._read_bytes = _BODY_READ

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the base's name
        if self._head_size > HEAD_BYTES:
            raise ResponseRejected(f"its answer has more than {HEAD_BYTES // 1024} KiB of headers")
        part = await self._inner.read(min(max_bytes, self._read_bytes), timeout)
        self._reads.add(part)
        self._head_size += len(part)
        await self.time_slice.wait()
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        self._expect_response()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        return BoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self.time_slice)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, stream: BoundedStream) -> None:
        self._inner = inner
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = _ChunkCounter()
        async for chunk in self._inner:
            chunks.add(chunk)
            self._stream.on_body_received()
            await self._stream.time_slice.wait()
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
