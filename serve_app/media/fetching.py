"""From what a client wrote in a field for a file, base64, a `data:` URI or an http(s) URL, to the file's bytes.

Whoever serves a URL may be slow or hostile. So projects are kept apart: each has few fetches at a time, and others don't
wait for it.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import httpx2
import pybase64

from serve_app.media.bounded_answers import AnswerRefused
from serve_app.media.turns import Turns
from serve_app.media.url_guard import UrlGuard, UrlRefused, receiver_of

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


def decode_base64(value: str, limits: FileLimits) -> bytes:
    """Either alphabet, with or without padding and line breaks, or a `data:` URI. Raises what `limits` refuses with."""
    if value[:5].lower() == "data:":
        head, comma, value = value.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise limits.refuse("the data: URI is not base64")
    # Judged by its length before it is decoded, with room for line breaks.
    if len(value) > limits.max_bytes * 1.4 + 1024:
        raise limits.refuse("the file is too large")
    try:
        return pybase64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    compact = "".join(value.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return pybase64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise limits.refuse("not valid base64") from None


class TooManyFetches(Exception):
    """The project, or all who fetch from one origin, have so many fetches that this one's turn did not come."""


class FetchTurns:
    """How many fetches there may be at a time; those beyond wait, first come, first served."""

    def __init__(self, per_project: int = 16, per_origin: int = 32, patience_s: float = 30.0) -> None:
        self._projects = Turns(per_project)
        self._origins = Turns(per_origin)
        self._patience_s = patience_s

    @asynccontextmanager
    async def taken(self, project: str, origin: str) -> AsyncIterator[None]:
        """Raises TooManyFetches after `patience_s`."""
        async with AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(self._patience_s):
                    # In this order, so that no more of one project than its own turns wait at an origin for others'.
                    await turns.enter_async_context(self._projects.of(project))
                    await turns.enter_async_context(self._origins.of(origin))
            except TimeoutError:
                raise TooManyFetches from None
            yield


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches for one project."""

    guard: UrlGuard
    turns: FetchTurns
    project: str

    async def fetch(self, url: str, limits: FileLimits) -> bytes:
        """The body behind `url`, at most `max_bytes` of it. Raises what `limits` refuses with, or TooManyFetches."""
        try:
            async with self.guard.client(timeout=limits.timeout_s) as client:
                return await self._follow(client, url, limits)
        except (UrlRefused, AnswerRefused) as refusal:
            raise limits.refuse(f"the URL was refused: {refusal}") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise limits.refuse(f"the URL did not answer in full within {limits.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise limits.refuse("the URL could not be fetched") from None

    async def _follow(self, client: httpx2.AsyncClient, url: str, limits: FileLimits) -> bytes:
        """The body behind `url` and up to `max_redirects` redirects, each of which passes the client's guard anew."""
        target, left_s = httpx2.URL(url), limits.timeout_s
        now = asyncio.get_running_loop().time
        for _ in range(limits.max_redirects + 1):
            async with self.turns.taken(self.project, receiver_of(str(target))):
                began = now()
                async with asyncio.timeout(left_s), _answer(client, target) as response:
                    location = response.headers.get("location")
                    if response.status_code not in _REDIRECTS or location is None:
                        return await _body(response, limits)
                    target = target.join(location)
                left_s -= now() - began
        raise limits.refuse(f"the URL redirects more than {limits.max_redirects} times")


def _answer(client: httpx2.AsyncClient, url: httpx2.URL) -> AbstractAsyncContextManager[httpx2.Response]:
    # As it is: a compressed body could unfold past any limit.
    return client.stream("GET", url, headers={"Accept-Encoding": "identity"})


async def _body(response: httpx2.Response, limits: FileLimits) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise limits.refuse(f"the URL answered with HTTP status {response.status_code}")
    body = bytearray()
    patient_until = asyncio.get_running_loop().time() + GRACE_S
    try:
        async with asyncio.timeout_at(patient_until) as too_slow:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > limits.max_bytes:
                    raise limits.refuse("the file is too large")
                too_slow.reschedule(patient_until + len(body) / MIN_BYTES_PER_S)
    except TimeoutError:
        raise limits.refuse(f"the URL sends less than {MIN_BYTES_PER_S // 1024} KiB a second") from None
    return bytes(body)
