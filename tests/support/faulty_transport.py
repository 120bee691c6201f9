"""An HTTP transport between a client and a real service that loses responses and refuses connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import httpx2

RESPONSE_LOST: Final = "response lost"
"""The service answers the request, and the connection breaks before the client has the response."""
UNREACHABLE: Final = "unreachable"
"""No connection is made."""


@dataclass(frozen=True)
class ProxyResponse:
    """A response from a proxy; the request does not reach the service."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Fault: TypeAlias = str | ProxyResponse | None
"""The fault of one request; None means that the service answers it."""


@dataclass
class FaultyTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport for clients with and without asyncio. Requests fail by `faults`, in order, then succeed."""

    faults: list[Fault] = field(default_factory=list)
    requests: list[httpx2.Request] = field(default_factory=list)
    before: Callable[[httpx2.Request], None] = lambda _: None
    after: Callable[[httpx2.Response], None] = lambda _: None
    """Hooks that get each request that reaches the service and each response."""

    def __post_init__(self) -> None:
        self._plain = httpx2.HTTPTransport()
        self._async = httpx2.AsyncHTTPTransport()

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=self, trust_env=False, timeout=60)

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self, trust_env=False, timeout=60)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if isinstance(fault := self._begin(request), httpx2.Response):
            return fault
        response = self._plain.handle_request(request)
        if fault == RESPONSE_LOST:
            response.read()
            response.close()
        return self._end(request, response, fault)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if isinstance(fault := self._begin(request), httpx2.Response):
            return fault
        response = await self._async.handle_async_request(request)
        if fault == RESPONSE_LOST:
            await response.aread()
            await response.aclose()
        return self._end(request, response, fault)

    def close(self) -> None:
        self._plain.close()

    async def aclose(self) -> None:
        await self._async.aclose()

    def _begin(self, request: httpx2.Request) -> str | httpx2.Response | None:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        if fault == UNREACHABLE:
            raise httpx2.ConnectError("connection refused", request=request)
        if isinstance(fault, ProxyResponse):
            return httpx2.Response(fault.status, text=fault.text, headers=dict(fault.headers))
        self.before(request)
        return fault

    def _end(self, request: httpx2.Request, response: httpx2.Response, fault: str | None) -> httpx2.Response:
        self.after(response)
        if fault == RESPONSE_LOST:
            raise httpx2.ReadError("the connection broke", request=request)
        return response
