"""Hosts and origins: the service's public URL, trusted hosts and proxies, CORS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from pydantic import IPvAnyNetwork
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.api.errors import CODES, error_response
from serve_app.config.sections import LOOPBACK_ORIGINS, ServiceSettings, is_loopback, is_unspecified

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
_UNKNOWN_HOST = (
    "This service does not have this host name. Use the address of its operator, who can add names in "
    "service.public_url and service.allowed_hosts"
)


def public_base(request: HTTPConnection, settings: ServiceSettings) -> str:
    """Returns `scheme://host[:port]` of the configured public URL, else of this request.

    `X-Forwarded-Proto` and `X-Forwarded-Host` are only read from a trusted proxy.
    """
    if settings.public_url:
        return settings.public_url.rstrip("/")
    scheme, host = _scheme_and_host(request, settings)
    return f"{scheme}://{host}"


def client_address(request: HTTPConnection, settings: ServiceSettings) -> str:
    """Returns the client's address for rate limits; empty if unknown. For IPv6 it is the /64 network.

    It is the last hop of `X-Forwarded-For` that is neither loopback, as HAProxy is, nor a trusted proxy.
    """
    forwarded = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    hops = [hop for each in forwarded if (hop := each.strip())] + ([request.client.host] if request.client else [])
    for hop in reversed(hops):
        if not (is_loopback(hop) or _is_trusted_proxy(hop, settings.trusted_proxies)):
            return _client_network(hop)
    return ""


def _client_network(hop: str) -> str:
    try:
        address = _unmap(ip_address(hop))
    except ValueError:
        return ""
    return str(ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def _unmap(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Converts an IPv4 address that a dual-stack proxy writes as IPv6."""
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


class TrustedHosts:
    """ASGI middleware: 421 for hosts that are neither in the settings nor loopback.

    Otherwise links would lead to such hosts, and a page could reach the service from its visitors' browsers by DNS
    rebinding. `open_paths` are for probes, which only know addresses.
    """

    def __init__(self, app: ASGIApp, settings: ServiceSettings, open_paths: frozenset[str]) -> None:
        self.app = app
        self.settings = settings
        self.open_paths = open_paths
        self.names = _own_names(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self.open_paths:
            request = HTTPConnection(scope)
            _, host = _scheme_and_host(request, self.settings)
            if not self._is_trusted(host):
                await error_response(request, 421, CODES[421], _UNKNOWN_HOST)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _is_trusted(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"].lower().strip("[]")
        return name in self.names or is_loopback(name)


def _own_names(settings: ServiceSettings) -> frozenset[str]:
    urls = [settings.public_url, settings.regions.get(settings.region or "")]
    names = {urlsplit(url).hostname for url in urls if url}
    names |= {name.strip("[]") for name in settings.allowed_hosts}
    if not is_unspecified(settings.host):
        names.add(settings.host.lower())
    return frozenset(name for name in names if name)


def _scheme_and_host(request: HTTPConnection, settings: ServiceSettings) -> tuple[str, str]:
    """Returns the requested scheme and host. The host is empty if the request has none."""
    scheme, host = request.url.scheme, request.headers.get("host", "")
    if request.client and _is_trusted_proxy(request.client.host, settings.trusted_proxies):
        protocol = _first(request.headers.get("x-forwarded-proto"))
        scheme = protocol if protocol in ("http", "https") else scheme
        host = _first(request.headers.get("x-forwarded-host")) or host
    return scheme, host


def _is_trusted_proxy(peer: str, proxies: Sequence[IPvAnyNetwork]) -> bool:
    try:
        address = _unmap(ip_address(peer))
    except ValueError:
        return False
    return any(address in proxy for proxy in proxies)


def _first(header: str | None) -> str:
    return (header or "").split(",")[0].strip()


_ORIGIN: Final = re.compile(r"https?://(\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(:[0-9]{1,5})?")
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_REQUEST_HEADERS: Final = (
    "x-key",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "range",
    "user-agent",
)
_RESPONSE_HEADERS: Final = (
    "Retry-After",
    "ETag",
    "RateLimit",
    "RateLimit-Policy",
    "Deprecation",
    "Sunset",
    "Link",
    "Allow",
    "WWW-Authenticate",
)


class CrossOrigin(CORSMiddleware):
    """ASGI middleware: allows scripts of `origins` to send requests with keys and read all responses.

    Below `open_path` the app decides by itself.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], open_path: str) -> None:
        fixed_origins = [origin for origin in origins if origin != LOOPBACK_ORIGINS]
        super().__init__(
            app,
            allow_origins=fixed_origins,
            allow_methods=_METHODS,
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_RESPONSE_HEADERS,
        )
        self.loopback = LOOPBACK_ORIGINS in origins
        self.open_path = open_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self.open_path):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        return super().is_allowed_origin(origin) or (self.loopback and _is_loopback_origin(origin))

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return JSONResponse(
            {"detail": bytes(response.body).decode(), "code": "origin_not_allowed"},
            response.status_code,
            self.preflight_headers,
        )


def _is_loopback_origin(origin: str) -> bool:
    match = _ORIGIN.fullmatch(origin)
    return match is not None and is_loopback(match["v6"] or match["name"])
