"""The fetcher of http(s) URLs in file fields.

Whoever serves a URL may be slow or hostile. So each owner has few fetches at a time, and others don't wait for them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Final, Protocol

import brotli
import httpx2

from serve_app.inputs.settings import NetworkSettings
from serve_app.inputs.url_guard import AnswerRefused, Turns, UrlGuard, UrlRefused, connection_problem, parse_destination


def _accept_any_size(size: int) -> None: ...


hold: ContextVar[Callable[[int], None]] = ContextVar("hold", default=_accept_any_size)
"""To be called with each further number of bytes, which are held until the request ends; raises where there is no room
for them."""

GRACE_S: Final = 3.0
MIN_BYTES_PER_S: Final = 8 * 1024
"""How fast a body must come, on average, once `GRACE_S` have passed since its head came."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class FileLimits(Protocol):
    """`max_bytes` counts the decoded file; `timeout_s` is the whole time a URL may take, redirects included.

    Waiting for a turn is not part of it.
    """

    @property
    def max_bytes(self) -> int: ...
    @property
    def max_redirects(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...

    def refuse(self, problem: str) -> ValueError:
        """The error for `problem`, with what would be accepted instead."""
        ...


def is_url(value: str) -> bool:
    return value[:8].lower().startswith(("http://", "https://"))


class TooManyFetches(Exception):
    """So many fetches of its owner, or from its origin, were before this one that its turn did not come."""


class FetchTurns:
    """How many fetches there may be at a time; those beyond wait, first come, first served."""

    def __init__(self, per_owner: int = 32, per_origin: int = 64, patience_s: float = 30.0) -> None:
        self._owners = Turns(per_owner)
        self._origins = Turns(per_origin)
        self._patience_s = patience_s

    @classmethod
    def from_settings(cls, settings: NetworkSettings) -> FetchTurns:
        return cls(settings.fetches_per_organization, settings.fetches_per_origin)

    @asynccontextmanager
    async def acquire(self, owner: str, origin: str) -> AsyncIterator[None]:
        """Raises TooManyFetches after `patience_s`."""
        async with AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(self._patience_s):
                    # In this order, so that an owner's fetches before others' at an origin are no more than its turns.
                    await turns.enter_async_context(self._owners.get(owner))
                    await turns.enter_async_context(self._origins.get(origin))
            except TimeoutError:
                raise TooManyFetches from None
            yield


class Fetcher:
    def __init__(self, guard: UrlGuard, turns: FetchTurns, about: str | None = None) -> None:
        """`about` is the address of this service, which hosts are told: some refuse clients that don't say who they
        are."""
        self._guard = guard
        self._turns = turns
        self._agent = f"gen-serve/{version('gen-serve')}" + (f" (+{about})" if about else "")

    async def fetch(self, url: str, owner: str, limits: FileLimits) -> bytes:
        """The body behind `url`, at most `max_bytes` of it. Raises what `limits` refuses with, or TooManyFetches."""
        try:
            async with self._guard.client(timeout=limits.timeout_s, headers={"user-agent": self._agent}) as client:
                return await self._follow(client, url, owner, limits)
        except (UrlRefused, AnswerRefused) as refusal:
            raise limits.refuse(f"the URL was refused: {refusal}") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise limits.refuse(f"the URL did not answer in full within {limits.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise limits.refuse(f"the URL could not be fetched: {connection_problem(error)}") from None

    async def _follow(self, client: httpx2.AsyncClient, url: str, owner: str, limits: FileLimits) -> bytes:
        """The body behind `url` and up to `max_redirects` redirects, each of which passes the client's guard anew."""
        target, remaining_s = httpx2.URL(url), limits.timeout_s
        now = asyncio.get_running_loop().time
        for _ in range(limits.max_redirects + 1):
            async with self._turns.acquire(owner, parse_destination(str(target))):
                began = now()
                async with asyncio.timeout(remaining_s), _answer(client, target) as response:
                    location = response.headers.get("location")
                    if response.status_code not in _REDIRECTS or location is None:
                        return await _body(response, limits)
                    target = _join(target, location, limits)
                remaining_s -= now() - began
        raise limits.refuse(f"the URL redirects more than {limits.max_redirects} times")


def _join(base: httpx2.URL, location: str, limits: FileLimits) -> httpx2.URL:
    try:
        return base.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise limits.refuse("the URL redirects to what is no URL") from None


def _answer(client: httpx2.AsyncClient, url: httpx2.URL) -> AbstractAsyncContextManager[httpx2.Response]:
    return client.stream("GET", url, headers={"Accept-Encoding": "identity"})


async def _body(response: httpx2.Response, limits: FileLimits) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise limits.refuse(f"the URL answered with HTTP status {response.status_code}")
    body, holding, decompressor = bytearray(), hold.get(), _decompressor(response, limits)
    patient_until = asyncio.get_running_loop().time() + GRACE_S
    try:
        async with asyncio.timeout_at(patient_until) as too_slow:
            async for raw in response.aiter_raw():
                chunk = decompressor.decompress(raw, limits.max_bytes + 1 - len(body)) if decompressor else raw
                body += chunk
                if len(body) > limits.max_bytes:
                    raise limits.refuse("the file is too large")
                holding(len(chunk))
                too_slow.reschedule(patient_until + len(body) / MIN_BYTES_PER_S)
    except (zlib.error, brotli.error):
        raise limits.refuse("what the URL answered is not compressed as it says") from None
    except TimeoutError:
        raise limits.refuse(f"the URL sends less than {MIN_BYTES_PER_S // 1024} KiB a second") from None
    return bytes(body)


class _Zlib:
    """Undoes `gzip` or `deflate`. Never unfolds more than it may."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 32)  # with a header of either kind
        self._has_output = False

    def decompress(self, raw: bytes, most: int) -> bytes:
        """At most `most` bytes. Raises zlib.error."""
        try:
            plain = self._inner.decompress(self._inner.unconsumed_tail + raw, most)
        except zlib.error:
            if self._has_output:
                raise
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)  # many write deflate without its header
            plain = self._inner.decompress(raw, most)
        self._has_output = True
        return plain


class _Brotli:
    """Undoes `br`. Never unfolds much more than it may."""

    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def decompress(self, raw: bytes, most: int) -> bytes:
        """At most a block of 32 KiB more than `most` bytes. Raises brotli.error."""
        plain = self._inner.process(raw, output_buffer_limit=most)
        while len(plain) < most and not self._inner.can_accept_more_data():
            plain += self._inner.process(b"", output_buffer_limit=most - len(plain))
        return plain


def _decompressor(response: httpx2.Response, limits: FileLimits) -> _Zlib | _Brotli | None:
    """For a body that its host compressed, which some do though nobody asked."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib()
    if encoding == "br":
        return _Brotli()
    if encoding not in ("", "identity"):
        raise limits.refuse(f"the URL answered in the encoding {encoding[:20]!r}; expected none, gzip, deflate or br")
    return None
