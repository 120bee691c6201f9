"""The published Python client, with and without asyncio, on a network that a test has in its hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from gen_serve_client import AsyncClient, Client, Retries

from support.bad_network import BadNetwork
from support.blocking import Blocking

Connect: TypeAlias = Callable[..., Client]
"""Takes an address, a key, and `retries`."""
AT_ONCE: Final = Retries(first_wait_s=0.001)


def plain(network: BadNetwork, base_url: str, key: str, retries: Retries = AT_ONCE) -> Client:
    return Client(base_url, key, retries=retries, http=network.client())


def asynchronous(
    runner: asyncio.Runner, network: BadNetwork, base_url: str, key: str, retries: Retries = AT_ONCE
) -> Any:
    """Called as if it was a plain one."""
    return Blocking(AsyncClient(base_url, key, retries=retries, http=network.async_client()), runner)
