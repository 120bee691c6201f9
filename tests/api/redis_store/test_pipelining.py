"""Commands that share a connection: what becomes of them when it breaks, or when the server hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError, TimeoutError

from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.storage.pipelining import PipelinedRedis


async def share(redis: Redis) -> None:
    """Returns once its commands share a connection."""
    await redis.get("any")
    shared = cast(PipelinedRedis, redis)._shared
    assert shared is not None
    assert shared._connecting is not None
    await shared._connecting


async def test_every_caller_gets_its_own_answer_also_when_the_connection_breaks(redis: Redis, prefix: str) -> None:
    keys, name = [f"{prefix}{n}" for n in range(1000)], f"{prefix}hash"
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


async def test_nobody_waits_for_ever_for_a_server_that_hangs(doomed_redis: EmbeddedRedis) -> None:
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
