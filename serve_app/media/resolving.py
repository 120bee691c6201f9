"""Host names to addresses, in threads of their own.

The system's resolver blocks its thread, for half a minute where a name server is silent. So it shares no thread with
other work, and the names that one organization asks for get few threads at a time, those of one domain fewer: what
never resolves leaves the rest to others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

LookUp: TypeAlias = Callable[[str, int], Sequence[str]]
"""Host and port to addresses, blocking. Raises OSError when there are none."""

asker: ContextVar[str] = ContextVar("asker", default="")
"""On whose behalf names are looked up: an organization, or the project where only that is known."""

THREADS: Final = 512
PER_ASKER: Final = 64
PER_DOMAIN: Final = 8
"""Of one asker. What can't be told apart by its last two labels (`co.uk`) would hold up others, too."""


class SystemResolver:
    """A Resolver (url_guard.py) for one event loop. Whoever calls it says how long to wait."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        """`look_up` is the system's unless it is given."""
        self._look_up = look_up or _system_look_up
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookups")
        self._askers = Turns(PER_ASKER)
        self._domains = Turns(PER_DOMAIN)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host`. Raises OSError when there are none, UnicodeError for what is no name."""
        loop, who = asyncio.get_running_loop(), asker.get()
        async with AsyncExitStack() as waiting:
            # The domain's first, so that a silent one takes no more of its asker's turns than its own.
            taken = [self._domains.of((who, _domain(host))), self._askers.of(who)]
            for turn in taken:
                await waiting.enter_async_context(turn)
            lookup = self._threads.submit(self._look_up, host, port)
            waiting.pop_all()

        # The turns last as long as the thread is busy, also where nobody waits for it any more.
        def release() -> None:
            for turn in taken:
                turn.release()

        def ended(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed, and with it every wait
                loop.call_soon_threadsafe(release)

        lookup.add_done_callback(ended)
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
        self._of: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, key: Hashable) -> asyncio.Semaphore:
        """Keep it for as long as the turn is taken: it is forgotten with whoever holds it last."""
        turns = self._of.get(key)
        if turns is None:
            turns = self._of[key] = asyncio.Semaphore(self._per_key)
        return turns
