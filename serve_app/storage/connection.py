"""Redis connections of every process.

`redis://` and `rediss://` name one server, `redis+sentinel://` and `rediss+sentinel://` the sentinels that know which
server is the primary: `redis+sentinel://user:password@host-1:26379,[::1]:26379/name-of-the-primary?db=0`. Sentinels
with users of their own have `sentinel_username` and `sentinel_password`; TLS and its options (`ssl_ca_certs`, …) are
for sentinels and servers alike.
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
"""Problems after which it is unknown whether the server carried out the command."""

UNREACHABLE = (*NO_ANSWER, *TRY_AGAIN, StoreRefused)
"""Problems that callers see when Redis stayed out of reach, full or read-only through all retries, or refused."""

_SENTINEL: Final = "+sentinel"
_SENTINEL_PORT: Final = 26379
_POOL_FACTOR: Final = 16
"""Times the connections: this kind of pool has nobody wait for one, and fails where there is none."""
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]]+)(?::(\d+))?")
"""A name, an IPv4 address, or an IPv6 address in brackets; then perhaps a port."""


def connect(
    url: str, *, max_connections: int = 64, retries: int = 8, timeout_s: float = 5.0, answer_s: float | None = None
) -> Redis:
    """A client that decodes replies and rides out a restart of the server, or a failover to its replica.

    It repeats a call whose answer was lost, so every script must bear being run twice. `retries` waits double from
    20 ms to 0.5 s: 8 of them are about 2 s in all. With `answer_s` no call takes longer than that, repetitions and all:
    it then ends with TimeoutError. Raises ValueError for a URL that is none.
    """
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.02), retries),
        "retry_on_error": [*NO_ANSWER, *TRY_AGAIN],
    }
    if url.partition("://")[0].endswith(_SENTINEL):
        pool = _primary(url, max_connections, options)
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


def _primary(url: str, max_connections: int, options: dict[str, Any]) -> SentinelConnectionPool:
    """Connections to whichever server the sentinels say is the primary, asked anew at each connection."""
    # Python's own reader refuses several hosts where one is an IPv6 address.
    scheme, _, rest = url.partition("://")
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    credentials, _, hosts = netloc.rpartition("@")
    parts = urlsplit(f"redis://sentinels{rest[len(netloc) :]}")
    name = parts.path.strip("/")
    sentinels = [_ADDRESS.fullmatch(host) for host in hosts.split(",")]
    if not name or not all(sentinels):
        raise ValueError("a sentinel URL names its sentinels and the primary: redis+sentinel://host:26379/name")
    addresses = [(match[1].strip("[]"), int(match[2] or _SENTINEL_PORT)) for match in sentinels if match]
    # The client library reads the options of a URL of one server: TLS, user and database are the same here.
    one_server = f"{scheme.removesuffix(_SENTINEL)}://{credentials}@sentinels/?{parts.query}"
    own: dict[str, Any] = {**parse_url(one_server)}
    uses_tls = own.pop("connection_class", None) is not None
    del own["host"]
    sentinel_options = {name: value for name, value in own.items() if name.startswith("ssl_")}
    for option in ("username", "password"):
        sentinel_options[option] = own.pop(f"sentinel_{option}", None)
    # One that is gone is asked once: the next one knows.
    sentinel_options |= {
        "ssl": uses_tls,
        "socket_timeout": 1.0,
        "decode_responses": True,
        "retry": Retry(NoBackoff(), 0),
    }
    finder = Sentinel(addresses, sentinel_kwargs=sentinel_options)
    return _PrimaryPool(
        name, finder, max_connections=_POOL_FACTOR * max_connections, ssl=uses_tls, **{**own, **options}
    )


class _PrimaryPool(SentinelConnectionPool):
    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


class _BoundedRedis(PipelinedRedis):
    answer_s: float

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with _within(self.answer_s):
            return await super().execute_command(*args, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        pipeline = _BoundedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipeline.answer_s = self.answer_s
        return pipeline


class _BoundedPipeline(StorePipeline):
    answer_s: float

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        async with _within(self.answer_s):
            return await super().execute(raise_on_error)


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
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
