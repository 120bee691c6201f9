"""How every process of the service talks to Redis."""

from __future__ import annotations

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, OutOfMemoryError, ReadOnlyError, TimeoutError

UNREACHABLE = (BusyLoadingError, ConnectionError, OutOfMemoryError, ReadOnlyError, TimeoutError)
"""What callers see when Redis stayed out of reach, full or read-only (a failover) through all retries."""


def connect(url: str, *, max_connections: int = 64, retries: int = 8, timeout_s: float = 5.0) -> Redis:
    """A client that decodes replies and rides out a restart of the server.

    It repeats a call whose answer was lost, so every script must bear being run twice. `retries` waits double from
    20 ms to 0.5 s: 8 of them are about 2 s in all.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        decode_responses=True,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), retries),
        retry_on_error=list(UNREACHABLE),
    )
    return Redis.from_pool(pool)
