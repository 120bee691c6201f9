"""A network that loses answers, or has nobody at its other end, between a client and a real service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import httpx2

ANSWER_LOST: Final = "answer lost"
"""The service has the request, and has answered it."""
NOBODY: Final = "nobody"
"""No connection is made."""


@dataclass(frozen=True)
class Instead:
    """Someone on the way answers in the service's place."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Fate: TypeAlias = str | Instead | None
"""What becomes of a request; None: it is answered as usual."""


@dataclass
class BadNetwork(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """For clients with and without asyncio. What is not foretold in `fates` goes well."""

    fates: list[Fate] = field(default_factory=list)
    requests: list[httpx2.Request] = field(default_factory=list)
    before: Callable[[httpx2.Request], None] = lambda _: None
    after: Callable[[httpx2.Response], None] = lambda _: None
    """Hear of what reaches the service, and of what it answers."""

    def __post_init__(self) -> None:
        self._plain = httpx2.HTTPTransport()
        self._async = httpx2.AsyncHTTPTransport()

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=self, trust_env=False, timeout=60)

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self, trust_env=False, timeout=60)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if isinstance(fate := self._begin(request), httpx2.Response):
            return fate
        response = self._plain.handle_request(request)
        if fate == ANSWER_LOST:
            response.read()
            response.close()
        return self._end(request, response, fate)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if isinstance(fate := self._begin(request), httpx2.Response):
            return fate
        response = await self._async.handle_async_request(request)
        if fate == ANSWER_LOST:
            await response.aread()
            await response.aclose()
        return self._end(request, response, fate)

    def close(self) -> None:
        self._plain.close()

    async def aclose(self) -> None:
        await self._async.aclose()

    def _begin(self, request: httpx2.Request) -> str | httpx2.Response | None:
        self.requests.append(request)
        fate = self.fates.pop(0) if self.fates else None
        if fate == NOBODY:
            raise httpx2.ConnectError("nobody is there", request=request)
        if isinstance(fate, Instead):
            return httpx2.Response(fate.status, text=fate.text, headers=dict(fate.headers))
        self.before(request)
        return fate

    def _end(self, request: httpx2.Request, response: httpx2.Response, fate: str | None) -> httpx2.Response:
        self.after(response)
        if fate == ANSWER_LOST:
            raise httpx2.ReadError("the connection broke", request=request)
        return response
