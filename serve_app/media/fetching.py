"""From an http(s) URL that a client wrote in a field for a file to the file's bytes.

Whoever serves a URL may be slow or hostile. So each owner has few fetches at a time, and others don't wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, Protocol

import httpx2

from serve_app.media.bounded_answers import AnswerRefused
from serve_app.media.holding import hold
from serve_app.media.settings import NetworkSettings
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


class TooManyFetches(Exception):
    """So many fetches of its owner, or from its origin, were before this one that its turn did not come."""


class FetchTurns:
    """How many fetches there may be at a time; those beyond wait, first come, first served."""

    def __init__(self, per_owner: int = 32, per_origin: int = 64, patience_s: float = 30.0) -> None:
        self._owners = Turns(per_owner)
        self._origins = Turns(per_origin)
        self._patience_s = patience_s

    @classmethod
    def of(cls, settings: NetworkSettings) -> FetchTurns:
        return cls(settings.fetches_per_organization, settings.fetches_per_origin)

    @asynccontextmanager
    async def taken(self, owner: str, origin: str) -> AsyncIterator[None]:
        """Raises TooManyFetches after `patience_s`."""
        async with AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(self._patience_s):
                    # In this order, so that an owner's fetches before others' at an origin are no more than its turns.
                    await turns.enter_async_context(self._owners.of(owner))
                    await turns.enter_async_context(self._origins.of(origin))
            except TimeoutError:
                raise TooManyFetches from None
            yield


class Fetcher:
    def __init__(self, guard: UrlGuard, turns: FetchTurns) -> None:
        self._guard = guard
        self._turns = turns

    async def fetch(self, url: str, owner: str, limits: FileLimits) -> bytes:
        """The body behind `url`, at most `max_bytes` of it. Raises what `limits` refuses with, or TooManyFetches."""
        try:
            async with self._guard.client(timeout=limits.timeout_s) as client:
                return await self._follow(client, url, owner, limits)
        except (UrlRefused, AnswerRefused) as refusal:
            raise limits.refuse(f"the URL was refused: {refusal}") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise limits.refuse(f"the URL did not answer in full within {limits.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise limits.refuse("the URL could not be fetched") from None

    async def _follow(self, client: httpx2.AsyncClient, url: str, owner: str, limits: FileLimits) -> bytes:
        """The body behind `url` and up to `max_redirects` redirects, each of which passes the client's guard anew."""
        target, left_s = httpx2.URL(url), limits.timeout_s
        now = asyncio.get_running_loop().time
        for _ in range(limits.max_redirects + 1):
            async with self._turns.taken(owner, receiver_of(str(target))):
                began = now()
                async with asyncio.timeout(left_s), _answer(client, target) as response:
                    location = response.headers.get("location")
                    if response.status_code not in _REDIRECTS or location is None:
                        return await _body(response, limits)
                    target = _joined(target, location, limits)
                left_s -= now() - began
        raise limits.refuse(f"the URL redirects more than {limits.max_redirects} times")


def _joined(base: httpx2.URL, location: str, limits: FileLimits) -> httpx2.URL:
    try:
        return base.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise limits.refuse("the URL redirects to what is no URL") from None


def _answer(client: httpx2.AsyncClient, url: httpx2.URL) -> AbstractAsyncContextManager[httpx2.Response]:
    # As it is: a compressed body could unfold past any limit.
    return client.stream("GET", url, headers={"Accept-Encoding": "identity"})


async def _body(response: httpx2.Response, limits: FileLimits) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise limits.refuse(f"the URL answered with HTTP status {response.status_code}")
    body, holding = bytearray(), hold.get()
    patient_until = asyncio.get_running_loop().time() + GRACE_S
    try:
        async with asyncio.timeout_at(patient_until) as too_slow:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > limits.max_bytes:
                    raise limits.refuse("the file is too large")
                holding(len(chunk))
                too_slow.reschedule(patient_until + len(body) / MIN_BYTES_PER_S)
    except TimeoutError:
        raise limits.refuse(f"the URL sends less than {MIN_BYTES_PER_S // 1024} KiB a second") from None
    return bytes(body)
