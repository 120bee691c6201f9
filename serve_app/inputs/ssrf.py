"""Guard against server-side request forgery (SSRF) for every URL that a client makes the service call.

Only http and https are allowed, without credentials, and every address of the host must be public. The guard's client
resolves, checks and connects in one step, so neither a redirect nor a name that changes between check and connection
gets past it. Error messages never name an address: the service would become a resolver for internal networks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias, cast

import httpcore2
import httpx2

from deployments.proxies import proxy_for
from serve_app.inputs.bounded_response import BoundedBody, BoundedStream, TimeSlice
from serve_app.inputs.httpx_internals import set_network_backend
from serve_app.inputs.resolver import FairResolver, Resolver

_Network: TypeAlias = IPv4Network | IPv6Network

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_SPECIAL: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))
"""Special-purpose addresses (RFC 6890) that `is_global` accepts before Python 3.13."""
_RESOLVE_TIMEOUT_S: Final = 5.0
_NOT_PUBLIC: Final = "the host of the URL is not on the public internet"


class UrlRefused(ValueError):
    """The service does not call this URL. Clients may read the message."""


class UrlGuard:
    def __init__(self, allow: Sequence[str] = (), resolve: Resolver | None = None) -> None:
        """`allow` opens host names (exact) and networks (CIDR or single addresses) that would be refused."""
        self._resolve = resolve or FairResolver()
        self.time_slice = TimeSlice()
        """Shared by all responses of this guard's clients."""
        self._hosts: set[str] = set()
        self._networks: list[_Network] = []
        for entry in allow:
            try:
                self._networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                self._hosts.add(_fold_host(entry))

    async def check(self, url: str) -> None:
        """Raises UrlRefused if the service must not call `url`, or its host is unknown."""
        parts = parse_url(url)
        if await self.find_proxy(parts) is None:
            await self.addresses(parts.raw_host.decode("ascii"), _port(parts))

    async def find_proxy(self, url: httpx2.URL) -> str | None:
        """Returns the proxy through which to call `url`; None for a direct call.

        Hosts that `allow` opens are called directly. The proxy resolves a name that can't be resolved here. Raises
        UrlRefused if the name resolves to an address that is not open to the service.
        """
        host = url.raw_host.decode("ascii")
        proxy = None if _fold_host(host) in self._hosts else proxy_for(str(url))
        if proxy is None:
            return None
        try:
            addresses = await self._lookup(host, _port(url))
        except (OSError, UnicodeError):
            return proxy
        if all(is_public(_unwrap(address)) for address in addresses):
            return proxy
        if all(map(self._is_open, addresses)):
            return None
        raise UrlRefused(_NOT_PUBLIC)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Returns the addresses of `host`. Raises UrlRefused unless all of them are open to the service."""
        try:
            addresses = await self._lookup(host, port)
        except TimeoutError:
            raise UrlRefused("the host name of the URL could not be resolved in time") from None
        except (OSError, UnicodeError):
            addresses = []
        if not addresses:
            raise UrlRefused("the host name of the URL cannot be resolved")
        if _fold_host(host) not in self._hosts and not all(map(self._is_open, addresses)):
            raise UrlRefused(_NOT_PUBLIC)
        return addresses

    async def _lookup(self, host: str, port: int) -> list[str]:
        """Raises TimeoutError, OSError or UnicodeError."""
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            return list(dict.fromkeys(await self._resolve(host, port)))

    def client(
        self,
        *,
        timeout: httpx2.Timeout | float = 10.0,
        limits: httpx2.Limits | None = None,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> httpx2.AsyncClient:
        """Returns a client that raises UrlRefused as it connects where `check` would.

        It follows no redirects and uses the proxy of `find_proxy`. Reading a response may raise ResponseRejected.
        `timeout` is in seconds. The parameters are few on purpose: a proxy or a mounted transport would bypass the
        guard.
        """
        limits = limits or httpx2.Limits(max_connections=100, max_keepalive_connections=20)
        transport = _GuardedTransport(self, verify or self._ssl_context, limits)
        return httpx2.AsyncClient(
            transport=transport, trust_env=False, follow_redirects=False, timeout=timeout, headers=headers
        )

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        # Loading the certificates takes tens of milliseconds: once per guard, not once per client.
        return httpx2.create_ssl_context(trust_env=False)

    def _is_open(self, address: str) -> bool:
        ip = _unwrap(address)
        return any(ip in network for network in self._networks) or is_public(ip)


def connection_problem(error: Exception) -> str:
    """Returns why a call failed, for the client that sent the URL."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    for error_type, problem in (
        (ssl.SSLCertVerificationError, "its TLS certificate is not trusted"),
        (ssl.SSLError, "it does not speak TLS there"),
        (ConnectionRefusedError, "the connection was refused"),
        (ConnectionResetError, "the connection was reset"),
    ):
        if any(isinstance(each, error_type) for each in causes):
            return problem
    return "could not connect" if isinstance(error, httpx2.ConnectError) else "the answer broke off"


def parse_url(url: str) -> httpx2.URL:
    """Parses `url`. Raises UrlRefused unless it is an http(s) URL with a host and without credentials."""
    try:
        parts = httpx2.URL(url)
        _ = parts.host  # decodes Punycode, as the client will: ValueError for an invalid name
    except (httpx2.InvalidURL, ValueError):
        raise UrlRefused("not a valid URL") from None
    _check_parts(parts)
    return parts


def parse_destination(url: str) -> str:
    """Returns scheme, host and port of `url`. Raises UrlRefused like `parse_url`."""
    parts = parse_url(url)
    return f"{parts.scheme}://{_fold_host(parts.raw_host.decode('ascii'))}:{_port(parts)}"


def is_public(ip: IPv4Address | IPv6Address) -> bool:
    """Returns whether an address, or the IPv4 address that it wraps, is on the public internet."""
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(ip.ipv4_mapped)
        if ip.sixtofour is not None:
            return is_public(ip.sixtofour)
        # `is_global` accepts translated (NAT64), IPv4-compatible and site-local addresses.
        if ip.teredo is not None or ip not in _GLOBAL_UNICAST:
            return False
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL)
    return ip.is_global and not special


class _GuardedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, guard: UrlGuard, verify: ssl.SSLContext, limits: httpx2.Limits) -> None:
        self._guard = guard
        self._verify = verify
        self._limits = limits
        self._transports: dict[str | None, httpx2.AsyncHTTPTransport] = {}
        """Transports by proxy URL; None for direct calls."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _check_parts(request.url)
        response = await self._transport(await self._guard.find_proxy(request.url)).handle_async_request(request)
        connection = response.extensions["network_stream"]
        # A switch of protocols replaces the stream; such a response has no body.
        if isinstance(connection, BoundedStream) and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedBody(response.stream, connection)
        return response

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def _transport(self, proxy: str | None) -> httpx2.AsyncHTTPTransport:
        if proxy not in self._transports:
            transport = httpx2.AsyncHTTPTransport(
                verify=self._verify, trust_env=False, limits=self._limits, retries=0, proxy=proxy
            )
            set_network_backend(transport, (_GuardedNetwork if proxy is None else _ProxyNetwork)(self._guard))
            self._transports[proxy] = transport
        return self._transports[proxy]


class _GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to the very addresses that the guard has checked; TLS still verifies the host's name."""

    def __init__(self, guard: UrlGuard) -> None:
        self._guard = guard
        # Declared as a stub where anyio is missing, which hides its methods.
        self._inner = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class names it so
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._addresses(host, port)
                connection = await self._connect_first(addresses, port, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("connecting took too long") from error
        return BoundedStream(connection, self._guard.time_slice)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        return await self._guard.addresses(host, port)

    async def _connect_first(
        self, addresses: Sequence[str], port: int, local_address: str | None, socket_options: Iterable[Any] | None
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = addresses
        for address in others:
            try:
                return await self._inner.connect_tcp(address, port, None, local_address, socket_options)
            except httpcore2.ConnectError:
                continue
        return await self._inner.connect_tcp(last, port, None, local_address, socket_options)


class _ProxyNetwork(_GuardedNetwork):
    """Connects to the operator's proxy; `find_proxy` has checked the host behind it."""

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        return [host]


def _check_parts(url: httpx2.URL) -> None:
    if url.scheme not in ("http", "https"):
        raise UrlRefused("the URL must start with http:// or https://")
    if not url.raw_host:
        raise UrlRefused("the URL must name a host")
    if url.port is not None and not 0 < url.port < 2**16:
        raise UrlRefused("not a valid URL")
    if url.userinfo:
        raise UrlRefused("the URL must not contain credentials")


def _unwrap(address: str) -> IPv4Address | IPv6Address:
    """Parses an address without its zone. An IPv4-mapped IPv6 address becomes an IPv4 address."""
    ip = ip_address(address.partition("%")[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _fold_host(host: str) -> str:
    return host.lower().rstrip(".")
