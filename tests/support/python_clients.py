"""The Python client, with and without asyncio, over a transport that a test controls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from gen_serve_client import AsyncClient, Client, Retries

from support.faulty_transport import FaultyTransport

Connect: TypeAlias = Callable[..., Client]
"""Takes an address, a key and `retries`."""
AT_ONCE: Final = Retries(first_wait_s=0.001)


class Blocking:
    """Wraps an asyncio client so that a test can call it like the synchronous one."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            result = value(*args, **options)
            return self._wait(result) if inspect.iscoroutine(result) else result

        return call

    def _wait(self, promised: Any) -> Any:
        result = self._runner.run(promised)
        awaits = any(inspect.iscoroutinefunction(getattr(type(result), name)) for name in dir(type(result)))
        return Blocking(result, self._runner) if awaits else result


def plain(network: FaultyTransport, base_url: str, key: str, retries: Retries = AT_ONCE) -> Client:
    return Client(base_url, key, retries=retries, http=network.client())


def asynchronous(
    runner: asyncio.Runner, network: FaultyTransport, base_url: str, key: str, retries: Retries = AT_ONCE
) -> Any:
    return Blocking(AsyncClient(base_url, key, retries=retries, http=network.async_client()), runner)
