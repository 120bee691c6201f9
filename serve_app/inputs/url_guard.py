"""The URL guard (SSRF): resolution, address checks and bounded reading for every URL that a client makes the service
call.

Only http and https, no credentials, and every address of the host must be public. The client resolves, checks and
connects in one step, so neither a name that changes between a check and a connection nor a redirect gets past it.
Reasons given to the client never name an address: they would turn the service into a resolver for inside networks.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary

import httpcore2
import httpx2

from deployments.proxies import proxy_for

LookUp: TypeAlias = Callable[[str, int], Sequence[str]]
"""Host and port to addresses, blocking. Raises OSError when there are none."""

dns_tenant: ContextVar[str] = ContextVar("dns_tenant", default="")
"""Organization for which names are looked up."""

THREADS: Final = 512
PER_TENANT: Final = 64
PER_DOMAIN: Final = 8
"""Lookups of one tenant at a time in one domain. Domains with the same last two labels (`co.uk`) share them."""


class SystemResolver:
    """Resolver for one event loop. Callers set their own time limit."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        """`look_up` is the system's unless it is given."""
        self._look_up = look_up or _system_look_up
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookups")
        self._tenants = Turns(PER_TENANT)
        self._domains = Turns(PER_DOMAIN)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Returns the addresses of `host`. Raises OSError if there are none, UnicodeError for an invalid name."""
        loop, tenant = asyncio.get_running_loop(), dns_tenant.get()
        async with AsyncExitStack() as waiting:
            # The domain's first, so that a silent one takes no more of its tenant's turns than its own.
            turns = [self._domains.get((tenant, _domain(host))), self._tenants.get(tenant)]
            for turn in turns:
                await waiting.enter_async_context(turn)
            lookup = self._threads.submit(self._look_up, host, port)
            waiting.pop_all()

        # The turns last as long as the thread is busy, also where nobody waits for it any more.
        def release() -> None:
            for turn in turns:
                turn.release()

        def on_done(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed, and with it every wait
                loop.call_soon_threadsafe(release)

        lookup.add_done_callback(on_done)
        return await asyncio.wrap_future(lookup)


def _domain(host: str) -> str:
    """The last two labels: what one owner of names has for sure."""
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


def _system_look_up(host: str, port: int) -> Sequence[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Turns:
    """Hands out so many turns at a time for each key; who waits goes in the order of coming. For one event loop."""

    def __init__(self, per_key: int) -> None:
        self._per_key: Final = per_key
        self._semaphores: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    def get(self, key: Hashable) -> asyncio.Semaphore:
        """Returns the semaphore of a key, which is dropped with its last holder."""
        turns = self._semaphores.get(key)
        if turns is None:
            turns = self._semaphores[key] = asyncio.Semaphore(self._per_key)
        return turns


HEAD_BYTES: Final = 16 * 1024
"""Bytes in a row that hold none of a body: a head, the framing of chunks, trailers."""
FREE_PIECES: Final = 256
PIECE_BYTES: Final = 256
"""The average piece, as it is read or as a chunk, once there were `FREE_PIECES`."""
_SLICE_S: Final = 0.005
_HEAD_READ: Final = 4 * 1024
_BODY_READ: Final = 32 * 1024


class AnswerRefused(Exception):
    """The answer goes beyond these bounds; its connection is closed. The message is fit for the client's eyes."""


class LoopSlice:
    """A slice of each turn of the event loop, for all readers together."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        """Loop in which a slice has begun."""
        self._began = 0.0

    async def wait(self) -> None:
        """Returns at once while the slice lasts, else in a later turn of the loop."""
        loop = asyncio.get_running_loop()
        while self._loop is loop and loop.time() - self._began > _SLICE_S:  # noqa: ASYNC110 - for a turn
            await asyncio.sleep(0)
        if self._loop is not loop:
            self._loop, self._began = loop, loop.time()
            loop.call_soon(self._end)

    def _end(self) -> None:
        self._loop = None


class _Pieces:
    """Counts the pieces of one answer."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def add(self, piece: bytes) -> None:
        """Raises AnswerRefused."""
        self._count += 1
        self._bytes += len(piece)
        if self._count > FREE_PIECES + self._bytes // PIECE_BYTES:
            raise AnswerRefused("its answer comes in too many tiny pieces")


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A connection whose answers are bounded. `BoundedBody` tells it what of them is body."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, loop_slice: LoopSlice) -> None:
        self._inner = inner
        self.loop_slice = loop_slice
        self._expect_answer()

    def _expect_answer(self) -> None:
        self._reads = _Pieces()
        self._head_size = 0
        self._read_bytes = _HEAD_READ

    def body_came(self) -> None:
        self._head_size = 0
        self._read_bytes = _BODY_READ

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the base's name
        if self._head_size > HEAD_BYTES:
            raise AnswerRefused(f"its answer has more than {HEAD_BYTES // 1024} KiB of headers")
        part = await self._inner.read(min(max_bytes, self._read_bytes), timeout)
        self._reads.add(part)
        self._head_size += len(part)
        await self.loop_slice.wait()
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        self._expect_answer()  # each request has its own
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        return BoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self.loop_slice)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer that comes by `stream`."""

    def __init__(self, inner: httpx2.AsyncByteStream, stream: BoundedStream) -> None:
        self._inner = inner
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = _Pieces()
        async for chunk in self._inner:
            chunks.add(chunk)
            self._stream.body_came()
            await self._stream.loop_slice.wait()
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses in their order of preference. Raises OSError when there are none."""

_Network: TypeAlias = IPv4Network | IPv6Network

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_SPECIAL: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))
"""Special-purpose addresses (RFC 6890) that `is_global` lets through before Python 3.13."""
_RESOLVE_TIMEOUT_S: Final = 5.0
_NOT_PUBLIC: Final = "the host of the URL is not on the public internet"


class UrlRefused(ValueError):
    """The service does not call this URL. The message is the reason, fit for the client's eyes."""


class UrlGuard:
    def __init__(self, allow: Sequence[str] = (), resolve: Resolver | None = None) -> None:
        """`allow` opens host names (exact) and networks (CIDR or single addresses) that would be refused."""
        self._resolve = resolve or SystemResolver()
        self.loop_slice = LoopSlice()
        """For all answers that come by this guard's clients."""
        self._hosts: set[str] = set()
        self._networks: list[_Network] = []
        for entry in allow:
            try:
                self._networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                self._hosts.add(_plain(entry))

    async def check(self, url: str) -> None:
        """Raises UrlRefused when the service must not call `url`, or when its host is not known."""
        parts = parse_url(url)
        if await self.find_proxy(parts) is None:
            await self.addresses(parts.raw_host.decode("ascii"), _port(parts))

    async def find_proxy(self, url: httpx2.URL) -> str | None:
        """The proxy that a call of `url` goes through; None for a direct call.

        Names and addresses that are open by `allow` are called directly. A name that is unknown here is the proxy's to
        resolve. Raises UrlRefused where the host is known here and not open to the service.
        """
        host = url.raw_host.decode("ascii")
        proxy = None if _plain(host) in self._hosts else proxy_for(str(url))
        if proxy is None:
            return None
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                addresses = await self._resolve(host, _port(url))
        except (TimeoutError, OSError, UnicodeError):
            return proxy
        if all(is_public(_unwrap(address)) for address in addresses):
            return proxy
        if all(map(self._is_open, addresses)):
            return None
        raise UrlRefused(_NOT_PUBLIC)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host`, all of them open to the service. Raises UrlRefused otherwise."""
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                addresses = list(dict.fromkeys(await self._resolve(host, port)))
        except TimeoutError:
            raise UrlRefused("the host name of the URL could not be resolved in time") from None
        except (OSError, UnicodeError):
            addresses = []
        if not addresses:
            raise UrlRefused("the host name of the URL cannot be resolved")
        if _plain(host) not in self._hosts and not all(map(self._is_open, addresses)):
            raise UrlRefused(_NOT_PUBLIC)
        return addresses

    def client(
        self,
        *,
        timeout: httpx2.Timeout | float = 10.0,
        limits: httpx2.Limits | None = None,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> httpx2.AsyncClient:
        """A client that refuses with UrlRefused what `check` would refuse, at the moment it connects.

        Answers are bounded: reading one may raise AnswerRefused. It follows no redirects and goes through the proxy
        that `find_proxy` names. `timeout` is in seconds. The keywords are few on purpose: another proxy or a mounted
        transport would go past the guard.
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
        parts = httpx2.URL(url)
        # Undoes what a name outside ASCII is written by, as the client will: a ValueError where it is no such name.
        _ = parts.host
    except (httpx2.InvalidURL, ValueError):
        raise UrlRefused("not a valid URL") from None
    _check_parts(parts)
    return parts


def parse_destination(url: str) -> str:
    """Scheme, host and port of `url`: whom a call of it reaches. Raises UrlRefused like `parse_url`."""
    parts = parse_url(url)
    return f"{parts.scheme}://{_plain(parts.raw_host.decode('ascii'))}:{_port(parts)}"


def is_public(ip: IPv4Address | IPv6Address) -> bool:
    """Tells whether an address, or the one that it wraps, is on the public internet."""
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


class _GuardedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, guard: UrlGuard, verify: ssl.SSLContext, limits: httpx2.Limits) -> None:
        self._guard = guard
        self._verify = verify
        self._limits = limits
        self._transports: dict[str | None, httpx2.AsyncHTTPTransport] = {}
        """One for each proxy, by its URL; None is the direct one."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _check_parts(request.url)
        response = await self._transport(await self._guard.find_proxy(request.url)).handle_async_request(request)
        connection = response.extensions["network_stream"]
        # It is another one where the protocol was switched; then there is no body.
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
            # There is no public parameter for the backend; the tests fail if this ever stops taking effect.
            network = _GuardedNetwork(self._guard) if proxy is None else _ProxyNetwork(self._guard)
            transport._pool._network_backend = network
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
        return BoundedStream(connection, self._guard.loop_slice)

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

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise UrlRefused("the URL must start with http:// or https://")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


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
    """The address without its zone, and without its IPv6 wrapping where it is an IPv4 address."""
    ip = ip_address(address.partition("%")[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _plain(host: str) -> str:
    return host.lower().rstrip(".")
