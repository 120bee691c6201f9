"""Reaches the Redis of a service from the command line, whether the service runs or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.cli import configuration
from serve_app.local import sealing_key
from serve_app.local.embedded_redis import EmbeddedRedis, running_url
from serve_app.redis_store import connection
from serve_app.sealing.at_rest import AtRest


@asynccontextmanager
async def connected(config: Path | None, *, make: bool = False) -> AsyncIterator[tuple[Redis, str]]:
    """A client and the key prefix. Starts the embedded server for as long as needed when none runs.

    Raises FileNotFoundError where there is no data yet, unless it is to `make` some.
    """
    chosen = configuration.load(config)
    server: EmbeddedRedis | None = None
    url = chosen.redis.url or running_url(chosen.data_dir / "redis")
    if url is None:
        if not make and not (chosen.data_dir / "redis").is_dir():
            raise FileNotFoundError(
                f"there is no data in {chosen.data_dir} yet; gen-serve up makes it, --config names another"
            )
        server = EmbeddedRedis(chosen.data_dir / "redis")
        server.start()
        url = server.url
    redis = connection.connect(url)
    try:
        yield redis, chosen.redis.prefix
    finally:
        await redis.aclose()
        if server is not None:
            server.stop()


def at_rest(config: Path | None) -> AtRest:
    """Reads what the service sealed, as far as the keys are here."""
    return sealing_key.with_key_if_made(configuration.load(config)).at_rest()


def object_store(config: Path | None) -> ObjectStore:
    """Where the service keeps its objects."""
    chosen = configuration.load(config)
    return ObjectStore(chosen.objects_url, chosen.objects.options)


def objects_to_read(config: Path | None) -> ObjectStore:
    """The same, only to be read: a folder that is not there is not made, but read as an empty one."""
    chosen = configuration.load(config)
    if chosen.objects.url is None and not chosen.data_dir.is_dir():
        return ObjectStore("memory:///")
    return object_store(config)
