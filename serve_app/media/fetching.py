"""From an http(s) URL that a client wrote in a field for a file to the file's bytes."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import httpx2

from serve_app.media.url_guard import UrlGuard, UrlRefused

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class FileLimits(Protocol):
    """`max_bytes` counts the decoded file; `timeout_s` is the whole time a URL may take, redirects included."""

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


async def fetch(url: str, guard: UrlGuard, limits: FileLimits) -> bytes:
    """The body behind `url`, at most `max_bytes` of it. Raises what `limits` refuses with."""
    try:
        async with asyncio.timeout(limits.timeout_s), guard.client(timeout=limits.timeout_s) as client:
            return await _follow(client, url, limits)
    except UrlRefused as refusal:
        raise limits.refuse(f"the URL was refused: {refusal}") from None
    except (TimeoutError, httpx2.TimeoutException):
        raise limits.refuse(f"the URL did not answer in full within {limits.timeout_s:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL):
        raise limits.refuse("the URL could not be fetched") from None


async def _follow(client: httpx2.AsyncClient, url: str, limits: FileLimits) -> bytes:
    """The body behind `url` and up to `max_redirects` redirects, each of which passes the client's guard anew."""
    target = httpx2.URL(url)
    for _ in range(limits.max_redirects + 1):
        async with client.stream("GET", target, headers={"Accept-Encoding": "identity"}) as response:
            location = response.headers.get("location")
            if response.status_code not in _REDIRECTS or location is None:
                return await _body(response, limits)
            target = target.join(location)
    raise limits.refuse(f"the URL redirects more than {limits.max_redirects} times")


async def _body(response: httpx2.Response, limits: FileLimits) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise limits.refuse(f"the URL answered with HTTP status {response.status_code}")
    body = bytearray()
    # Raw bytes, as a compressed body could unfold past any limit.
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limits.max_bytes:
            raise limits.refuse("the file is too large")
    return bytes(body)
