"""Claims: each delivery goes to one sender at a time, no receiver gets too much, and nothing that is lost stays so."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from support.deliveries import (
    DOWN,
    HOUR_S,
    OK,
    OTHER_RECEIVER,
    OTHER_URL,
    RECEIVER,
    claimed,
    ended,
    everything,
    found,
    members,
    one_ended,
    outbox_of,
    time_passes,
    until,
)

from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Claim, DeliveryAttempt, Outbox, State


async def test_many_claimers_get_each_delivery_once(store: TaskStore) -> None:
    ids: list[str] = []
    for n in range(8):
        ids += await ended(store, 25, f"http://receiver-{n}.test/")
    outboxes = [outbox_of(store, per_receiver=1000, per_organization=1000) for _ in range(12)]

    async def claim_all(outbox: Outbox) -> list[str]:
        mine: list[str] = []
        while (claims := await outbox.claim(3)) and len(mine) < len(ids):
            mine += [claim.id for claim in claims]
        return mine

    shares = await asyncio.gather(*map(claim_all, outboxes))
    assert Counter(i for share in shares for i in share) == Counter(ids)


async def test_a_receiver_gets_so_many_calls_at_a_time_from_all_senders_together(store: TaskStore) -> None:
    await ended(store, 20)
    outboxes = [outbox_of(store, per_receiver=3) for _ in range(6)]
    claims = [claim for part in await asyncio.gather(*(o.claim(2) for o in outboxes)) for claim in part]
    assert len(claims) == 3
    for claim, outcome in zip(claims, ("delivered", "retry", "failed"), strict=True):
        assert await outboxes[0].record(claim, OK, outcome, wait_s=HOUR_S)
        assert len(await outboxes[1].claim(10)) == 1
        assert await outboxes[2].claim(10) == []


async def test_an_organization_gets_so_many_calls_at_a_time_however_many_receivers_it_names(
    store: TaskStore, redis: Redis
) -> None:
    outboxes = [outbox_of(store, per_organization=3) for _ in range(4)]
    for number in range(8):
        await ended(store, 1, f"http://receiver-{number}.test/")
    claims = [claim for part in await asyncio.gather(*(o.claim(2) for o in outboxes)) for claim in part]
    assert len(claims) == 3
    await outboxes[0].prolong(claims)
    for claim, outcome in zip(claims, ("delivered", "retry", "failed"), strict=True):
        assert await outboxes[1].claim(10) == []
        assert await outboxes[0].record(claim, OK, outcome, wait_s=HOUR_S)
        await looked_at_again(redis, outboxes[0])
        assert len(await outboxes[1].claim(10)) == 1


async def test_receivers_of_an_organization_that_has_all_its_calls_hinder_no_other(
    store: TaskStore, redis: Redis
) -> None:
    """More of them are due, and for longer, than are looked at in one step."""
    outbox = outbox_of(store, per_organization=2)
    await ended(store, 1)
    for number in range(4):
        await ended(store, 1, f"http://receiver-{number}.test/")
    assert len(await outbox.claim(10)) == 2
    await redis.zadd(outbox.channel, {f"http://never-{number}.test:80 default": number for number in range(5000)})
    late = await ended(store, 1, OTHER_URL, organization="acme")
    got = [claim.id for _ in range(4) for claim in await outbox.claim(10)]
    assert got == late


async def looked_at_again(redis: Redis, outbox: Outbox) -> None:
    """In place of waiting for it."""
    for receiver in await members(redis, outbox.channel):
        await redis.zadd(outbox.channel, {receiver: 1}, xx=True, lt=True)


async def test_of_one_receiver_the_oldest_come_first(store: TaskStore) -> None:
    outbox = outbox_of(store, per_receiver=100)
    ids = await ended(store, 6)
    turns = [3, 1, 5, 0, 4, 2]
    await store.redis.zadd(
        f"{store.prefix}outbox:{RECEIVER}", {task_id: 1 + turn for task_id, turn in zip(ids, turns, strict=True)}
    )
    got = [(await claimed(outbox)).id for _ in ids]
    assert got == [task_id for _, task_id in sorted(zip(turns, ids, strict=True))]


async def test_a_claim_that_ran_out_comes_back_as_one_attempt(store: TaskStore, outbox: Outbox) -> None:
    task_id = await one_ended(store)
    lost = await claimed(outbox)
    assert await outbox.claim(10) == [], "it is still its sender's"
    await time_passes(outbox)
    again = await claimed(outbox)
    assert (again.id, again.attempt) == (task_id, 2)
    assert again.number > lost.number
    [noted] = (await found(outbox, task_id)).log
    assert (noted.status, noted.error) == (None, "the sender was lost on the way")


async def test_a_claim_runs_out_by_itself(store: TaskStore) -> None:
    outbox = outbox_of(store, claim_s=1)
    await one_ended(store)
    first = await claimed(outbox)
    seconds: list[Claim] = []

    async def comes_back() -> bool:
        seconds.extend(await outbox.claim(1))
        return bool(seconds)

    await until(comes_back)
    assert [claim.attempt for claim in seconds] == [first.attempt + 1]


async def test_what_kills_its_sender_every_time_fails(store: TaskStore) -> None:
    outbox = outbox_of(store, schedule_s=(1, 2))
    task_id = await one_ended(store)
    for attempt in (1, 2, 3):
        assert (await claimed(outbox)).attempt == attempt
        await time_passes(outbox)
    assert await outbox.claim(10) == []
    delivery = await found(outbox, task_id)
    assert (delivery.state, delivery.attempts, len(delivery.log)) == (State.FAILED, 3, 3)
    assert await members(store.redis, f"{store.prefix}undelivered") == [task_id]
    assert await members(store.redis, outbox.channel) == []


@pytest.mark.parametrize("outcome", ["delivered", "retry", "failed"])
async def test_a_claim_that_ran_out_records_nothing(store: TaskStore, outbox: Outbox, outcome: str) -> None:
    task_id = await one_ended(store)
    stale = await claimed(outbox)
    await time_passes(outbox)
    held = await claimed(outbox)
    before = await everything(store)
    assert not await outbox.record(stale, OK, outcome, unwell=True)  # type: ignore[arg-type]
    assert await everything(store) == before
    assert await outbox.record(held, OK, "delivered")
    assert (await found(outbox, task_id)).log[-1] == OK


async def test_a_prolonged_claim_is_kept_and_a_stale_one_can_not_be(store: TaskStore, outbox: Outbox) -> None:
    ids = await ended(store, 2)
    kept, lost = await outbox.claim(2)
    await store.redis.zadd(f"{store.prefix}sending:{RECEIVER}", dict.fromkeys(ids, 1))
    await outbox.prolong([])
    await outbox.prolong([kept, replace(lost, number=lost.number + 1), Claim("unknown", 1, 1)])
    await time_passes(outbox, claims=False)
    assert [claim.id for claim in await outbox.claim(10)] == [lost.id]
    assert await outbox.record(kept, OK, "delivered")


async def test_a_retry_waits_as_long_as_it_is_told(store: TaskStore, outbox: Outbox) -> None:
    task_id = await one_ended(store)
    await outbox.record(await claimed(outbox), DOWN, "retry", wait_s=HOUR_S)
    waiting = await found(outbox, task_id)
    assert waiting.state is State.WAITING
    assert waiting.next is not None
    assert waiting.created + HOUR_S <= waiting.next < waiting.created + HOUR_S + 60
    assert await outbox.claim(10) == []
    assert await store.redis.zscore(outbox.channel, RECEIVER) == waiting.next * 1000
    await time_passes(outbox)
    assert (await claimed(outbox)).attempt == 2


async def test_a_wait_ends_by_itself_and_another_delivery_does_not_wait_for_it(
    store: TaskStore, outbox: Outbox
) -> None:
    await one_ended(store)
    await outbox.record(await claimed(outbox), DOWN, "retry", wait_s=0.2)
    fresh = await one_ended(store)
    assert (await claimed(outbox)).id == fresh
    attempts: list[int] = []

    async def is_due() -> bool:
        attempts.extend(claim.attempt for claim in await outbox.claim(10))
        return bool(attempts)

    await until(is_due)
    assert attempts == [2]


async def test_the_last_fifty_attempts_are_kept(store: TaskStore) -> None:
    outbox = outbox_of(store, schedule_s=(1,) * 60)
    task_id = await one_ended(store)
    for n in range(1, 56):
        await outbox.record(await claimed(outbox), DeliveryAttempt(float(n), 404), "retry")
    delivery = await found(outbox, task_id)
    assert [attempt.at for attempt in delivery.log] == [float(n) for n in range(6, 56)]
    assert delivery.attempts == 55


async def test_idle_receivers_are_not_looked_at(store: TaskStore, outbox: Outbox, redis: Redis) -> None:
    await ended(store, 2)
    await one_ended(store, OTHER_URL)
    for claim in await outbox.claim(10):
        await outbox.record(claim, OK, "delivered")
    assert await members(redis, outbox.channel) == []
    await one_ended(store, OTHER_URL)
    assert await members(redis, outbox.channel) == [OTHER_RECEIVER]
