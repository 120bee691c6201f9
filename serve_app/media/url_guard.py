"""The guard in front of every URL that a client makes the service call: pictures to fetch, webhooks to deliver.

Only http and https, no credentials, and every address of the host must be public. The client resolves, checks and
connects in one step, so neither a name that changes between a check and a connection nor a redirect gets past it.
Reasons given to the client never name an address: they would turn the service into a resolver for inside networks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias, cast

import httpcore2
import httpx2

from serve_app.media.bounded_answers import BoundedBody, BoundedStream, LoopShare
from serve_app.media.resolving import SystemResolver

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses in their order of preference. Raises OSError when there are none."""

_Network: TypeAlias = IPv4Network | IPv6Network

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_SPECIAL: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))
"""Of IANA's registries of special-purpose addresses (RFC 6890), what `is_global` lets through in Python before 3.13."""
_RESOLVE_TIMEOUT_S: Final = 5.0


class UrlRefused(ValueError):
    """The service does not call this URL. The message is the reason, fit for the client's eyes."""


class UrlGuard:
    def __init__(self, allow: Sequence[str] = (), resolve: Resolver | None = None) -> None:
        """`allow` opens host names (exact) and networks (CIDR or single addresses) that would be refused."""
        self._resolve = resolve or SystemResolver()
        self.loop_share = LoopShare()
        """For all answers that come by this guard's clients."""
        self._hosts: set[str] = set()
        self._networks: list[_Network] = []
        for entry in allow:
            try:
                self._networks.append(ip_network(entry, strict=False))
            except ValueError:
                self._hosts.add(_plain(entry))

    async def check(self, url: str) -> None:
        """Raises UrlRefused when the service must not call `url`, or when its host is not known."""
        parsed = parse_url(url)
        await self.addresses(parsed.raw_host.decode("ascii"), _port(parsed))

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host`, all of them open to the service. Raises UrlRefused otherwise."""
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                found = list(dict.fromkeys(await self._resolve(host, port)))
        except TimeoutError:
            raise UrlRefused("the host name of the URL could not be resolved in time") from None
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise UrlRefused("the host name of the URL cannot be resolved")
        if _plain(host) not in self._hosts and not all(map(self._is_open, found)):
            raise UrlRefused("the host of the URL is not on the public internet")
        return found

    def client(
        self,
        *,
        timeout: httpx2.Timeout | float = 10.0,
        limits: httpx2.Limits | None = None,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> httpx2.AsyncClient:
        """A client that refuses with UrlRefused what `check` would refuse, at the moment it connects.

        Answers are bounded (bounded_answers.py): reading one may raise AnswerRefused. It follows no redirects and reads
        no proxy from the environment. `timeout` is in seconds. The keywords are few
        on purpose: a proxy or a mounted transport would go past the guard.
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
        ip = _unwrapped(address)
        return any(ip in network for network in self._networks) or is_public(ip)


def connection_problem(error: Exception) -> str:
    """Why a call failed, as far as that is anybody's business: fit for the eyes of whoever wrote the URL."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    for kind, problem in (
        (ssl.SSLCertVerificationError, "its TLS certificate is not trusted"),
        (ssl.SSLError, "it does not speak TLS there"),
        (ConnectionRefusedError, "the connection was refused"),
        (ConnectionResetError, "the connection was reset"),
    ):
        if any(isinstance(each, kind) for each in causes):
            return problem
    return "could not connect" if isinstance(error, httpx2.ConnectError) else "the answer broke off"


def parse_url(url: str) -> httpx2.URL:
    """The parts of `url`. Raises UrlRefused unless it is an http(s) URL with a host and without credentials."""
    try:
        parsed = httpx2.URL(url)
        # Undoes what a name outside ASCII is written by, as the client will: a ValueError where it is no such name.
        _ = parsed.host
    except (httpx2.InvalidURL, ValueError):
        raise UrlRefused("not a valid URL") from None
    _check_parts(parsed)
    return parsed


def receiver_of(url: str) -> str:
    """Scheme, host and port of `url`: whom a call of it reaches. Raises UrlRefused like `parse_url`."""
    parsed = parse_url(url)
    return f"{parsed.scheme}://{_plain(parsed.raw_host.decode('ascii'))}:{_port(parsed)}"


def is_public(ip: IPv4Address | IPv6Address) -> bool:
    """Whether an address lies on the public internet, also by way of the addresses that wrap another one."""
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(ip.ipv4_mapped)
        if ip.sixtofour is not None:
            return is_public(ip.sixtofour)
        # Keeps out translated (NAT64), IPv4-compatible and site-local addresses, which `is_global` lets through.
        if ip.teredo is not None or ip not in _GLOBAL_UNICAST:
            return False
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL)
    return ip.is_global and not special


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, guard: UrlGuard, verify: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=verify, trust_env=False, limits=limits, retries=0)
        # There is no public parameter for the backend; the tests fail if this ever stops taking effect.
        self._pool._network_backend = _GuardedBackend(guard)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _check_parts(request.url)
        response = await super().handle_async_request(request)
        connection = response.extensions["network_stream"]
        # It is another one where the protocol was switched; then there is no body.
        if isinstance(connection, BoundedStream) and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedBody(response.stream, connection)
        return response


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
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
                addresses = await self._guard.addresses(host, port)
                connection = await self._connect_first(addresses, port, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("connecting took too long") from error
        return BoundedStream(connection, self._guard.loop_share)

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

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise UrlRefused("the URL must start with http:// or https://")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _check_parts(url: httpx2.URL) -> None:
    if url.scheme not in ("http", "https"):
        raise UrlRefused("the URL must start with http:// or https://")
    if not url.raw_host:
        raise UrlRefused("the URL must name a host")
    if url.port is not None and not 0 < url.port < 2**16:
        raise UrlRefused("not a valid URL")
    if url.userinfo:
        raise UrlRefused("the URL must not contain credentials")


def _unwrapped(address: str) -> IPv4Address | IPv6Address:
    """The address without its zone, and without its IPv6 wrapping where it is an IPv4 address."""
    ip = ip_address(address.partition("%")[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _plain(host: str) -> str:
    return host.lower().rstrip(".")
