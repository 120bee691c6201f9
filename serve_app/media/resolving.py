"""Host names to addresses, in threads of their own.

The system's resolver blocks its thread, for half a minute where a name server is silent. So it shares no thread with
other work, and the names of one domain get few threads at a time: those that never resolve leave the rest to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

LookUp: TypeAlias = Callable[[str, int], Sequence[str]]
"""Host and port to addresses, blocking. Raises OSError when there are none."""

THREADS: Final = 64
PER_DOMAIN: Final = 8


class SystemResolver:
    """A Resolver (url_guard.py) for one event loop. Whoever calls it says how long to wait."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        """`look_up` is the system's unless it is given."""
        self._look_up = look_up or _system_look_up
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookups")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host`. Raises OSError when there are none, UnicodeError for what is no name."""
        loop = asyncio.get_running_loop()
        domain = _domain(host)
        turns = self._turns.get(domain)
        if turns is None:
            turns = self._turns[domain] = asyncio.Semaphore(PER_DOMAIN)
        await turns.acquire()
        lookup = self._threads.submit(self._look_up, host, port)

        # The turn lasts as long as the thread is busy, also where nobody waits for it any more.
        def ended(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every wait
                loop.call_soon_threadsafe(turns.release)

        lookup.add_done_callback(ended)
        return await asyncio.wrap_future(lookup)


def _domain(host: str) -> str:
    """The last two labels: what one owner of names has for sure."""
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


def _system_look_up(host: str, port: int) -> Sequence[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
