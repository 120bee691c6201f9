"""Commands on a shared connection that breaks, hangs or leads to a former primary."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import ResponseError, TimeoutError

from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection, pipelining
from serve_app.storage.pipelining import PipelinedRedis


async def share(redis: Redis) -> None:
    """Returns once its commands share a connection."""
    await redis.get("any")
    shared = cast(PipelinedRedis, redis)._shared
    assert shared is not None
    assert shared._connecting is not None
    await shared._connecting


async def test_callers_get_their_answers_after_the_connection_breaks(redis: Redis, prefix: str) -> None:
    # More than fit into a packet, and fewer than the connections of the pool, for which others would have to wait.
    keys, name = [f"{prefix}{n:040}" for n in range(60)], f"{prefix}hash"
    await redis.mset({key: key for key in keys})
    await redis.hset(name, "field", "value")
    for breaks in (False, True, False):
        await share(redis)
        calls = asyncio.gather(redis.hgetall(name), redis.get(name), *map(redis.get, keys), return_exceptions=True)
        await asyncio.sleep(0)
        if breaks:
            await redis.client_kill_filter(_type="normal", skipme=True)
        answers: list[Any] = await calls
        assert isinstance(answers.pop(1), ResponseError)
        assert answers == [{"field": "value"}, *keys]


async def test_hanging_server_times_out(doomed_redis: EmbeddedRedis) -> None:
    client = connection.connect(doomed_redis.url, retries=0, timeout_s=0.3)
    await share(client)
    assert doomed_redis.pid is not None
    os.kill(doomed_redis.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await client.get("any")
    finally:
        os.kill(doomed_redis.pid, signal.SIGCONT)
    assert await client.get("any") is None
    await client.aclose()


class Sentinels:
    """Stands for Sentinel: `primary` is the server that it names."""

    sentinels: tuple[Redis, ...] = ()

    def __init__(self, primary: EmbeddedRedis) -> None:
        self.primary = primary

    async def discover_master(self, name: str) -> tuple[str, int]:
        parts = urlsplit(self.primary.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port


async def test_reads_follow_a_failover_from_a_primary_that_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelining, "_PRIMARY_CHECK_S", 0.05)
    with ExitStack() as stack:
        servers = [EmbeddedRedis(tmp_path / name) for name in ("old", "new")]
        for server in servers:
            server.start()
            stack.callback(server.stop)
            async with connection.connect(server.url) as direct:
                await direct.set("name", server.url)
                await direct.acl_setuser("default", enabled=True, passwords=[f"+{urlsplit(servers[0].url).password}"])
        sentinels = Sentinels(servers[0])
        pool = SentinelConnectionPool("main", sentinels, **parse_url(servers[0].url), decode_responses=True)
        async with PipelinedRedis.from_pool(pool) as redis:
            await share(redis)
            assert await redis.get("name") == servers[0].url
            sentinels.primary = servers[1]
            async with asyncio.timeout(60):
                while await redis.get("name") != servers[1].url:
                    await asyncio.sleep(0.01)
