"""How fast a key may submit: the generic cell rate algorithm of the submit script."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis
from support.books import priced_task
from support.redis_contents import contents

from serve_app.storage.scripts import PRELUDE
from serve_app.tasks.limits import Limits, TooFast
from serve_app.tasks.store import TaskStore

EVERY_S = 1000.0
"""So slow that no request becomes due while a test runs."""
BURST = 4


@pytest.fixture
def paced(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(requests_per_s=1 / EVERY_S, burst=BURST))


async def send(store: TaskStore, key_id: str = "k", **changes: int) -> int | None:
    accepted = await store.submit(priced_task(changes.pop("price", 0), key_id=key_id))
    return accepted.requests_left


async def move_back(store: TaskStore, key_id: str, seconds: float) -> None:
    """As if that time had passed."""
    name = f"{store.prefix}rate:{key_id}"
    due = await store.redis.get(name)
    assert due is not None
    await store.redis.set(name, float(due) - seconds * 1000, keepttl=True)


async def test_a_burst_is_accepted_and_counted_down_then_the_key_must_wait(paced: TaskStore) -> None:
    assert [await send(paced) for _ in range(BURST)] == [3, 2, 1, 0]
    with pytest.raises(TooFast) as refused:
        await send(paced)
    assert 0 < refused.value.wait_s <= EVERY_S


async def test_a_refused_request_changes_nothing(paced: TaskStore, redis: Redis, prefix: str) -> None:
    for _ in range(BURST):
        await send(paced)
    before = await contents(redis, prefix)
    for _ in range(10):
        with pytest.raises(TooFast) as refused:
            await send(paced)
        assert refused.value.wait_s <= EVERY_S
    assert await contents(redis, prefix) == before


async def test_after_the_wait_one_more_request_is_accepted(paced: TaskStore) -> None:
    for _ in range(BURST):
        await send(paced)
    await move_back(paced, "k", EVERY_S)
    assert await send(paced) == 0
    with pytest.raises(TooFast):
        await send(paced)


async def test_a_key_that_paused_has_its_whole_burst_again_and_no_more(paced: TaskStore) -> None:
    for _ in range(BURST):
        await send(paced)
    await move_back(paced, "k", 100 * BURST * EVERY_S)
    assert [await send(paced) for _ in range(BURST)] == [3, 2, 1, 0]
    with pytest.raises(TooFast):
        await send(paced)


async def test_what_is_remembered_of_a_key_is_forgotten_when_its_next_request_is_due(paced: TaskStore) -> None:
    await send(paced)
    remaining_ms = await paced.redis.pttl(f"{paced.prefix}rate:k")
    assert 0 < remaining_ms <= EVERY_S * 1000


async def test_other_requests_are_counted_with_submissions(paced: TaskStore) -> None:
    assert [await paced.count_request("k") for _ in range(BURST - 1)] == [3, 2, 1]
    assert await send(paced) == 0
    with pytest.raises(TooFast) as refused:
        await paced.count_request("k")
    assert 0 < refused.value.wait_s <= EVERY_S
    assert await paced.count_request("other") == BURST - 1


async def test_a_look_takes_no_turn(paced: TaskStore) -> None:
    for _ in range(2 * BURST):
        await paced.look(lane="lane", project="p", organization="acme", price=0, key_id="k")
    assert await send(paced) == BURST - 1


ALL_AT_ONCE = """
local now, left = now_ms(), {}
for n = 1, tonumber(ARGV[4]) do
  local wait, more, due = pace('k', tonumber(ARGV[3]), tonumber(ARGV[4]), now)
  if wait > 0 then return 'request ' .. n .. ' is to wait for ' .. wait .. ' ms' end
  note_pace('k', due, now)
  left[n] = more
end
return left
"""


@pytest.mark.parametrize("requests_per_s", [3, 7, 100, 300, 1100])
async def test_a_whole_burst_passes_within_one_millisecond_at_any_pace(
    redis: Redis, prefix: str, requests_per_s: int
) -> None:
    script = PRELUDE.read_text() + ALL_AT_ONCE
    burst = 50
    left = await redis.eval(script, 0, prefix, "lane", str(1000 / requests_per_s), str(burst))  # type: ignore[misc]
    assert left == list(reversed(range(burst)))
