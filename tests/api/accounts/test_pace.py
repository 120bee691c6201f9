"""Rate limits of keys: the generic cell rate algorithm of the submit script."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.tasks import new_task

from serve_app.storage.scripts import PRELUDE, concat_scripts
from serve_app.tasks import scripts
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import RateLimited
from serve_app.tasks.store import TaskStore

EVERY_S = 1000.0
"""Seconds per request: none becomes due while a test runs."""
BURST = 4


@pytest.fixture
def limited_store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(requests_per_s=1 / EVERY_S, burst=BURST))


async def send(store: TaskStore) -> int | None:
    return (await store.submit(new_task(key_id="k"))).requests_left


@pytest.mark.parametrize(("passed_s", "remaining"), [(EVERY_S, [0]), (100 * BURST * EVERY_S, [3, 2, 1, 0])])
async def test_key_waits_after_a_burst(limited_store: TaskStore, passed_s: float, remaining: list[int]) -> None:
    name = f"{limited_store.prefix}rate:k"
    assert [await send(limited_store) for _ in range(BURST - 1)] == [3, 2, 1]
    assert 0 < await limited_store.redis.pttl(name) <= (BURST - 1) * EVERY_S * 1000
    assert await send(limited_store) == 0
    with pytest.raises(RateLimited) as refused:
        await send(limited_store)
    assert 0 < refused.value.wait_s <= EVERY_S
    due = await limited_store.redis.get(name)
    assert due is not None
    await limited_store.redis.set(name, float(due) - passed_s * 1000, keepttl=True)
    assert [await send(limited_store) for _ in remaining] == remaining
    with pytest.raises(RateLimited):
        await send(limited_store)


async def test_other_requests_count_as_submissions_and_prechecks_do_not(limited_store: TaskStore) -> None:
    for _ in range(2 * BURST):
        await limited_store.precheck(queue="model", project="p", organization="acme", price=0, key_id="k", task_id="t")
    assert [await limited_store.consume_rate_limit("k") for _ in range(BURST - 1)] == [3, 2, 1]
    assert await send(limited_store) == 0
    with pytest.raises(RateLimited) as refused:
        await limited_store.consume_rate_limit("k")
    assert 0 < refused.value.wait_s <= EVERY_S
    assert await limited_store.consume_rate_limit("other") == BURST - 1


RATE_LIMIT = Path(scripts.__file__).with_name("rate_limit.lua")
BURST_SCRIPT = """
local now, left = now_ms(), {}
for n = 1, tonumber(ARGV[4]) do
  local wait, more, due = check_rate('k', tonumber(ARGV[3]), tonumber(ARGV[4]), now)
  if wait > 0 then return 'request ' .. n .. ' is to wait for ' .. wait .. ' ms' end
  record_rate('k', due, now)
  left[n] = more
end
return left
"""


@pytest.mark.parametrize("requests_per_s", [3, 300, 1100])
async def test_burst_passes_within_one_millisecond_at_any_rate(redis: Redis, prefix: str, requests_per_s: int) -> None:
    script = concat_scripts(PRELUDE, RATE_LIMIT) + BURST_SCRIPT
    burst = 50
    remaining = await redis.eval(script, 0, prefix, "model", str(1000 / requests_per_s), str(burst))  # type: ignore[misc]
    assert remaining == list(reversed(range(burst)))
