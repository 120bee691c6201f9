"""Fetcher of http(s) URLs in file fields.

The host behind a URL may be slow or hostile. Each owner and each origin therefore has few fetches at a time, and an
owner's fetches don't delay those of others.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Final, Protocol

import brotli
import httpx2

from serve_app.inputs.bounded_response import ResponseRejected
from serve_app.inputs.resolver import KeyedSemaphores
from serve_app.inputs.settings import FileLimits, NetworkSettings
from serve_app.inputs.ssrf import UrlGuard, UrlRefused, connection_problem, parse_destination


def _accept_any_size(size: int) -> None: ...


reserve_memory: ContextVar[Callable[[int], None]] = ContextVar("reserve_memory", default=_accept_any_size)
"""Reserves a number of bytes more until the request ends. Raises if the process has too little memory for them."""

GRACE_S: Final = 3.0
MIN_BYTES_PER_S: Final = 8 * 1024
"""Minimum average speed of a body, once `GRACE_S` have passed since its head came."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def is_url(value: str) -> bool:
    return value[:8].lower().startswith(("http://", "https://"))


class TooManyFetches(Exception):
    """The fetch waited too long for others of its owner or from its origin."""


class FetchLimiter:
    """Limits concurrent fetches per owner and per origin. Waiting fetches go in FIFO order."""

    def __init__(self, per_owner: int = 32, per_origin: int = 64, max_wait_s: float = 30.0) -> None:
        self._owners = KeyedSemaphores(per_owner)
        self._origins = KeyedSemaphores(per_origin)
        self._max_wait_s = max_wait_s

    @classmethod
    def from_settings(cls, settings: NetworkSettings) -> FetchLimiter:
        return cls(settings.fetches_per_organization, settings.fetches_per_origin)

    @asynccontextmanager
    async def acquire(self, owner: str, origin: str) -> AsyncIterator[None]:
        """Raises TooManyFetches after `max_wait_s`."""
        async with AsyncExitStack() as slots:
            try:
                async with asyncio.timeout(self._max_wait_s):
                    # The owner's first: at an origin, others wait for `per_owner` fetches of one owner at most.
                    await slots.enter_async_context(self._owners.get(owner))
                    await slots.enter_async_context(self._origins.get(origin))
            except TimeoutError:
                raise TooManyFetches from None
            yield


class UrlFetcher:
    def __init__(self, guard: UrlGuard, limiter: FetchLimiter, service_url: str | None = None) -> None:
        """`service_url` goes into the user agent: some hosts refuse clients that don't say who they are."""
        self._guard = guard
        self._limiter = limiter
        self._agent = f"gen-serve/{version('gen-serve')}" + (f" (+{service_url})" if service_url else "")

    async def fetch(self, url: str, owner: str, limits: FileLimits) -> bytes:
        """Returns the body behind `url`. Raises an error of `limits.refuse`, or TooManyFetches."""
        try:
            async with self._guard.client(timeout=limits.timeout_s, headers={"user-agent": self._agent}) as client:
                return await self._follow(client, url, owner, limits)
        except (UrlRefused, ResponseRejected) as refusal:
            raise limits.refuse(f"the URL was refused: {refusal}") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise limits.refuse(f"the URL did not answer in full within {limits.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise limits.refuse(f"the URL could not be fetched: {connection_problem(error)}") from None

    async def _follow(self, client: httpx2.AsyncClient, url: str, owner: str, limits: FileLimits) -> bytes:
        """Fetches the body behind up to `max_redirects` redirects. The client's guard checks each of them."""
        target, remaining_s = httpx2.URL(url), limits.timeout_s
        now = asyncio.get_running_loop().time
        for _ in range(limits.max_redirects + 1):
            async with self._limiter.acquire(owner, parse_destination(str(target))):
                started_at = now()
                request = client.stream("GET", target, headers={"Accept-Encoding": "identity"})
                async with asyncio.timeout(remaining_s), request as response:
                    location = response.headers.get("location")
                    if response.status_code not in _REDIRECTS or location is None:
                        return await _read_body(response, limits)
                    target = _join(target, location, limits)
                remaining_s -= now() - started_at
        raise limits.refuse(f"the URL redirects more than {limits.max_redirects} times")


def _join(base: httpx2.URL, location: str, limits: FileLimits) -> httpx2.URL:
    try:
        return base.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise limits.refuse("the URL redirects to an invalid URL") from None


async def _read_body(response: httpx2.Response, limits: FileLimits) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise limits.refuse(f"the URL answered with HTTP status {response.status_code}")
    body, reserve, decoder = bytearray(), reserve_memory.get(), _bounded_decoder(response, limits)
    grace_until = asyncio.get_running_loop().time() + GRACE_S
    try:
        async with asyncio.timeout_at(grace_until) as too_slow:
            async for raw in response.aiter_raw():
                chunk = decoder.decode(raw, limits.max_bytes + 1 - len(body)) if decoder else raw
                body += chunk
                if len(body) > limits.max_bytes:
                    raise limits.refuse("the file is too large")
                reserve(len(chunk))
                too_slow.reschedule(grace_until + len(body) / MIN_BYTES_PER_S)
    except (zlib.error, brotli.error):
        raise limits.refuse("the URL's answer is not encoded as its Content-Encoding says") from None
    except TimeoutError:
        raise limits.refuse(f"the URL sends less than {MIN_BYTES_PER_S // 1024} KiB a second") from None
    return bytes(body)


class BoundedDecoder(Protocol):
    """Decoder of a content encoding that never expands much beyond its limit."""

    def decode(self, raw: bytes, max_bytes: int) -> bytes: ...


class _ZlibDecoder:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects the header of gzip or zlib
        self._has_output = False

    def decode(self, raw: bytes, max_bytes: int) -> bytes:
        """Raises zlib.error."""
        try:
            plain = self._inner.decompress(self._inner.unconsumed_tail + raw, max_bytes)
        except zlib.error:
            if self._has_output:
                raise
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)  # many servers send deflate without its header
            plain = self._inner.decompress(raw, max_bytes)
        self._has_output = True
        return plain


class _BrotliDecoder:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def decode(self, raw: bytes, max_bytes: int) -> bytes:
        """Returns up to 32 KiB more than `max_bytes`, a block of brotli. Raises brotli.error."""
        plain = self._inner.process(raw, output_buffer_limit=max_bytes)
        while len(plain) < max_bytes and not self._inner.can_accept_more_data():
            plain += self._inner.process(b"", output_buffer_limit=max_bytes - len(plain))
        return plain


def _bounded_decoder(response: httpx2.Response, limits: FileLimits) -> BoundedDecoder | None:
    """Returns the decoder for a body that its host encoded although the request asked for `identity`."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _ZlibDecoder()
    if encoding == "br":
        return _BrotliDecoder()
    if encoding not in ("", "identity"):
        raise limits.refuse(f"the URL answered in the encoding {encoding[:20]!r}; expected none, gzip, deflate or br")
    return None
