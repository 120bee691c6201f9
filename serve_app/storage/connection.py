"""Redis connections of every process.

URLs with `redis://` and `rediss://` name one server. Those with `redis+sentinel://` and `rediss+sentinel://` name the
sentinels that know the primary: `redis+sentinel://user:password@host-1:26379,[::1]:26379/name-of-the-primary?db=0`.
`sentinel_username` and `sentinel_password` are for sentinels with users of their own. TLS and its options
(`ssl_ca_certs`, …) apply to sentinels and servers alike.
"""

from __future__ import annotations

import asyncio
import builtins
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic import Field
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError, TimeoutError

from deployments.contract.strict_settings import StrictSettings
from serve_app.storage.pipelining import TRY_AGAIN, PipelinedRedis, StorePipeline
from serve_app.storage.refusals import StoreRefused
from serve_app.storage.scripts import Replication

NO_ANSWER = (ConnectionError, TimeoutError)
"""Errors after which it is unknown whether the server ran the command."""

UNREACHABLE = (*NO_ANSWER, *TRY_AGAIN, StoreRefused)
"""Errors if Redis stayed out of reach, full or read-only through all retries, or refused."""

_SENTINEL: Final = "+sentinel"
_SENTINEL_PORT: Final = 26379
_SENTINEL_TIMEOUT_S: Final = 1.0
_POOL_FACTOR: Final = 16
"""Factor on the connections of a Sentinel pool, which fails instead of waiting when it has none left."""
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]]+)(?::(\d+))?")
"""Name, IPv4 address, or IPv6 address in brackets, with an optional port."""


def connect(
    url: str, *, max_connections: int = 64, retries: int = 8, timeout_s: float = 5.0, answer_s: float | None = None
) -> Redis:
    """Returns a client that decodes replies and survives a restart of the server or a failover to its replica.

    It repeats a call whose answer was lost, so every script must be idempotent. Waits between `retries` double from
    20 ms to 0.5 s: about 2 s for 8 of them. `answer_s` bounds a call with all its retries, which then ends with
    TimeoutError. Raises ValueError for an invalid URL.
    """
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.02), retries),
        "retry_on_error": [*NO_ANSWER, *TRY_AGAIN],
    }
    if url.partition("://")[0].endswith(_SENTINEL):
        pool = _sentinel_pool(url, max_connections, options)
    else:
        pool = BlockingConnectionPool.from_url(url, max_connections=max_connections, timeout=timeout_s, **options)
    try:
        pool.make_connection()
    except TypeError as problem:
        raise ValueError(f"an option of the Redis URL is unknown: {str(problem).rpartition(' ')[2]}") from None
    if answer_s is None:
        return PipelinedRedis.from_pool(pool)
    client = cast(_BoundedRedis, _BoundedRedis.from_pool(pool))
    client.answer_s = answer_s
    return client


def _sentinel_pool(url: str, max_connections: int, options: dict[str, Any]) -> SentinelConnectionPool:
    """Returns a pool that asks the sentinels for the primary at each new connection."""
    # `urlsplit` refuses several hosts if one is an IPv6 address.
    scheme, _, location = url.partition("://")
    netloc = re.split("[/?#]", location, maxsplit=1)[0]
    credentials, _, hosts = netloc.rpartition("@")
    parts = urlsplit(f"redis://sentinels{location[len(netloc) :]}")
    name = parts.path.strip("/")
    sentinels = [_ADDRESS.fullmatch(host) for host in hosts.split(",")]
    if not name or not all(sentinels):
        raise ValueError("a sentinel URL names its sentinels and the primary: redis+sentinel://host:26379/name")
    addresses = [(match[1].strip("[]"), int(match[2] or _SENTINEL_PORT)) for match in sentinels if match]
    # redis-py parses the options in a URL of one server; TLS, user and database have the same form here.
    one_server = f"{scheme.removesuffix(_SENTINEL)}://{credentials}@sentinels/?{parts.query}"
    url_options: dict[str, Any] = {**parse_url(one_server)}
    uses_tls = url_options.pop("connection_class", None) is not None
    del url_options["host"]
    sentinel_options = {name: value for name, value in url_options.items() if name.startswith("ssl_")}
    for option in ("username", "password"):
        sentinel_options[option] = url_options.pop(f"sentinel_{option}", None)
    # Without retries: the next sentinel knows the primary, too.
    sentinel_options |= {
        "ssl": uses_tls,
        "socket_timeout": _SENTINEL_TIMEOUT_S,
        "decode_responses": True,
        "retry": Retry(NoBackoff(), 0),
    }
    sentinel = Sentinel(addresses, sentinel_kwargs=sentinel_options)
    return _PrimaryPool(
        name, sentinel, max_connections=_POOL_FACTOR * max_connections, ssl=uses_tls, **{**url_options, **options}
    )


class _PrimaryPool(SentinelConnectionPool):
    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


class _BoundedRedis(PipelinedRedis):
    answer_s: float

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with _answer_within(self.answer_s):
            return await super().execute_command(*args, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        pipeline = _BoundedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipeline.answer_s = self.answer_s
        return pipeline


class _BoundedPipeline(StorePipeline):
    answer_s: float

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        async with _answer_within(self.answer_s):
            return await super().execute(raise_on_error)


@asynccontextmanager
async def _answer_within(seconds: float) -> AsyncIterator[None]:
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except builtins.TimeoutError:
        if not deadline.expired():
            raise
        raise TimeoutError("no answer in time") from None


class RedisSettings(StrictSettings):
    url: str | None = None
    """redis:// or rediss:// URL of a server with appendonly and noeviction, or of its sentinels:
    redis+sentinel://user:password@host-1:26379,host-2:26379/primary?db=0. null: an embedded server in
    <data_dir>/redis."""
    prefix: str = "gen:"
    """Start of every key, unique per service. In cluster mode with a hash tag: "{gen}:"."""
    replicas: int = Field(default=0, ge=0)
    """Redis replicas that must have a write before it is acknowledged. With 1, a failover loses nothing."""
    replicated_s: float = Field(default=1.0, gt=0)
    """Seconds to wait for these replicas."""

    def replication(self) -> Replication:
        return Replication(self.replicas, self.replicated_s)
