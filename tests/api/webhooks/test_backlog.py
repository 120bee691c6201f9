"""A receiver that has been dead for days has thousands of deliveries waiting: nobody else waits for them."""

from __future__ import annotations

from support.deliveries import (
    DOWN,
    HOUR_S,
    LIMITS,
    OTHER_URL,
    claimed,
    ended,
    members,
    one_ended,
    outbox_of,
    time_passes,
)

from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox

BACKLOG = 2_500
"""More than any script looks at in one go."""


def patient(store: TaskStore) -> TaskStore:
    return TaskStore(store.redis, store.prefix, LIMITS)


async def test_another_tenants_tasks_are_swept_past_all_that_must_stay(store: TaskStore) -> None:
    store = patient(store)
    blocked = await ended(store, BACKLOG)
    free = await one_ended(store, url=None)
    key = f"{store.prefix}retention"
    await store.redis.zadd(key, dict.fromkeys(blocked, 1) | {free: 2})
    assert await store.sweep() == [free]
    assert await store.sweep([free]) == []
    assert len(await members(store.redis, key)) == BACKLOG


async def test_what_is_due_is_swept_in_bounded_parts_until_nothing_is_left(store: TaskStore) -> None:
    store = patient(store)
    ids = await ended(store, 25, url=None)
    await store.redis.zadd(f"{store.prefix}retention", dict.fromkeys(ids, 1))
    swept: list[str] = []
    while found := await store.sweep(swept[-10:], limit=10):
        assert len(found) <= 10
        swept += found
    assert sorted(swept) == sorted(ids)


async def test_deliveries_that_are_too_old_end_in_one_pass(store: TaskStore) -> None:
    store = patient(store)
    outbox = outbox_of(store, trips_after=1, shut_s=HOUR_S, most_shut_s=HOUR_S)
    await ended(store, BACKLOG)
    await outbox.record(await claimed(outbox), DOWN, "retry", unwell=True)
    impatient = outbox_of(store, trips_after=1, schedule_s=(1e-3,), timeout_s=1e-3, shut_s=HOUR_S, most_shut_s=HOUR_S)
    await time_passes(outbox)
    await _claims_until_nothing_is_due(impatient)
    assert len(await members(store.redis, f"{store.prefix}undelivered")) >= BACKLOG - 1


async def test_another_receiver_gets_its_deliveries_meanwhile(store: TaskStore) -> None:
    store = patient(store)
    outbox = outbox_of(store, trips_after=1, shut_s=HOUR_S, most_shut_s=HOUR_S)
    await ended(store, BACKLOG)
    await outbox.record(await claimed(outbox), DOWN, "retry", unwell=True)
    other = await one_ended(store, OTHER_URL)
    assert [claim.id for claim in await outbox.claim(10)] == [other]


async def _claims_until_nothing_is_due(outbox: Outbox) -> None:
    """What a sender does, without a pause: whatever it is told of, it looks at."""
    async with outbox.redis.pubsub() as told:
        await told.subscribe(outbox.channel)
        await outbox.claim(1)
        while message := await told.get_message(timeout=0.2):
            if message["type"] == "message":
                await outbox.claim(1)
