"""Host name resolver whose threads are shared fairly between organizations and domains."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses in order of preference. Raises OSError if there are none."""

BlockingResolver: TypeAlias = Callable[[str, int], Sequence[str]]

dns_tenant: ContextVar[str] = ContextVar("dns_tenant", default="")
"""Organization for which names are resolved."""

THREADS: Final = 512
PER_TENANT: Final = 64
PER_DOMAIN: Final = 8
"""Concurrent lookups of one tenant in one domain. Domains with the same last two labels (`co.uk`) share them."""


class KeyedSemaphores:
    """FIFO semaphores by key. For one event loop."""

    def __init__(self, per_key: int) -> None:
        self._per_key: Final = per_key
        self._semaphores: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    def get(self, key: Hashable) -> asyncio.Semaphore:
        """Returns the semaphore of a key, which is dropped with its last holder."""
        semaphore = self._semaphores.get(key)
        if semaphore is None:
            semaphore = self._semaphores[key] = asyncio.Semaphore(self._per_key)
        return semaphore


def _system_resolver(host: str, port: int) -> Sequence[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class FairResolver:
    """Resolver for one event loop. Callers set their own time limit."""

    def __init__(self, resolve: BlockingResolver = _system_resolver) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookups")
        self._tenants = KeyedSemaphores(PER_TENANT)
        self._domains = KeyedSemaphores(PER_DOMAIN)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Returns the addresses of `host`. Raises OSError if there are none, UnicodeError for an invalid name."""
        loop, tenant = asyncio.get_running_loop(), dns_tenant.get()
        domain = ".".join(host.lower().rstrip(".").split(".")[-2:])
        # The domain's first, so that lookups that wait for a silent domain hold none of their tenant's slots.
        slots = [self._domains.get((tenant, domain)), self._tenants.get(tenant)]
        async with AsyncExitStack() as acquired:
            for slot in slots:
                await acquired.enter_async_context(slot)
            lookup = self._threads.submit(self._resolve, host, port)
            acquired.pop_all()

        # A slot lasts as long as its thread is busy, even if the caller was cancelled.
        def release() -> None:
            for slot in slots:
                slot.release()

        def on_done(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(release)

        lookup.add_done_callback(on_done)
        return await asyncio.wrap_future(lookup)
