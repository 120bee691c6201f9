"""The address clients reach the service by."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from pydantic import IPvAnyNetwork
from starlette.requests import HTTPConnection

from serve_app.config.settings import ServiceSettings


def public_base(request: HTTPConnection, settings: ServiceSettings) -> str:
    """`scheme://host[:port]` without a slash: the configured public URL, else the one this request came to.

    `X-Forwarded-Proto` and `X-Forwarded-Host` count only when the peer is a trusted proxy.
    """
    if settings.public_url:
        return settings.public_url.rstrip("/")
    scheme, host = request.url.scheme, request.headers.get("host") or request.url.netloc
    if request.client and _trusted(request.client.host, settings.trusted_proxies):
        scheme = _first(request.headers.get("x-forwarded-proto")) or scheme
        host = _first(request.headers.get("x-forwarded-host")) or host
    return f"{scheme}://{host}"


def _trusted(peer: str, proxies: Sequence[IPvAnyNetwork]) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return any(address in proxy for proxy in proxies)


def _first(header: str | None) -> str:
    return (header or "").split(",")[0].strip()
