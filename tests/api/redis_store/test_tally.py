"""What processes count comes to the task store whole, and once."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from serve_app.storage import connection
from serve_app.storage.tally import TIMES, CounterBuffer, CounterName, read_counters

NOBODY = "redis://127.0.0.1:1"


async def test_counts_of_several_processes_add_up(redis: Redis, prefix: str) -> None:
    for seconds in (0.003, 0.2, 400.0):
        tally = CounterBuffer()
        tally.observe(CounterName.MODERATION, "request", seconds)
        tally.count(CounterName.REFUSALS, "queue_full gen-pro")
        await tally.flush(redis, prefix)
        await tally.flush(redis, prefix)
    histogram = TIMES.read("request", await read_counters(redis, prefix, CounterName.MODERATION))
    counted = dict(histogram.buckets)
    assert (counted[0.005], counted[0.1], counted[0.25], counted[180.0], histogram.count) == (1, 1, 2, 2, 3)
    assert histogram.sum == pytest.approx(400.203)
    assert await read_counters(redis, prefix, CounterName.REFUSALS) == {"queue_full gen-pro": "3"}


async def test_what_can_not_be_added_is_added_later_at_the_latest_at_the_end(redis: Redis, prefix: str) -> None:
    tally, unreachable = CounterBuffer(), connection.connect(NOBODY, answer_s=0.2)
    async with asyncio.timeout(60), tally.flush_periodically(unreachable, prefix):
        tally.count(CounterName.REFUSALS, "a b")
        with pytest.raises(RedisError):
            await tally.flush(unreachable, prefix)
    async with tally.flush_periodically(redis, prefix):
        tally.count(CounterName.REFUSALS, "a b")
    assert await read_counters(redis, prefix, CounterName.REFUSALS) == {"a b": "2"}
    await unreachable.aclose()
