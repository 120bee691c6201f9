"""What processes count comes to the task store whole, and once."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from serve_app.storage import connection
from serve_app.storage.tally import TIMES, Tallied, Tally, tallied

NOBODY = "redis://127.0.0.1:1"


async def test_counts_of_several_processes_add_up(redis: Redis, prefix: str) -> None:
    for seconds in (0.003, 0.2, 400.0):
        tally = Tally()
        tally.observe(Tallied.MODERATION, "request", seconds)
        tally.count(Tallied.REFUSALS, "queue_full gen-pro")
        await tally.add_to(redis, prefix)
        await tally.add_to(redis, prefix)
    found = TIMES.read("request", await tallied(redis, prefix, Tallied.MODERATION))
    counted = dict(found.buckets)
    assert (counted[0.005], counted[0.1], counted[0.25], counted[180.0], found.count) == (1, 1, 2, 2, 3)
    assert found.sum == pytest.approx(400.203)
    assert await tallied(redis, prefix, Tallied.REFUSALS) == {"queue_full gen-pro": "3"}


async def test_what_can_not_be_added_is_added_later_at_the_latest_at_the_end(redis: Redis, prefix: str) -> None:
    tally, lost = Tally(), connection.connect(NOBODY, answer_s=0.2)
    async with asyncio.timeout(60), tally.kept(lost, prefix):
        tally.count(Tallied.REFUSALS, "a b")
        with pytest.raises(RedisError):
            await tally.add_to(lost, prefix)
    async with tally.kept(redis, prefix):
        tally.count(Tallied.REFUSALS, "a b")
    assert await tallied(redis, prefix, Tallied.REFUSALS) == {"a b": "2"}
    await lost.aclose()
