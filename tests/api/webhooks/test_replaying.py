"""What was given up is listed; whatever has ended can be sent again; what is listed comes in pages."""

from __future__ import annotations

import pytest
from support.deliveries import (
    DOWN,
    HOUR_S,
    OK,
    OTHER_URL,
    claimed,
    ended,
    everything,
    found,
    hooked_task,
    members,
    one_ended,
    outbox_of,
    time_passes,
)

from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox, Outcome, State


async def ended_as(outbox: Outbox, store: TaskStore, outcome: Outcome) -> str:
    task_id = await one_ended(store)
    await outbox.record(await claimed(outbox), OK if outcome == "delivered" else DOWN, outcome)
    return task_id


async def failed_ids(outbox: Outbox) -> list[str]:
    deliveries, following = await outbox.list_deliveries(limit=100, failed=True)
    assert following is None
    return [delivery.id for delivery in deliveries]


async def test_only_what_was_given_up_is_listed_as_failed(store: TaskStore, outbox: Outbox) -> None:
    failed = await ended_as(outbox, store, "failed")
    delivered = await ended_as(outbox, store, "delivered")
    waiting = await one_ended(store)
    assert await failed_ids(outbox) == [failed]
    deliveries, _ = await outbox.list_deliveries(limit=10)
    states = {delivery.id: delivery.state for delivery in deliveries}
    assert states == {failed: State.FAILED, delivered: State.DELIVERED, waiting: State.WAITING}


@pytest.mark.parametrize("outcome", ["delivered", "failed"])
async def test_what_has_ended_is_sent_again_with_all_its_attempts(store: TaskStore, outcome: Outcome) -> None:
    outbox = outbox_of(store, schedule_s=(1, 2))
    task_id = await ended_as(outbox, store, outcome)
    first = await found(outbox, task_id)
    assert await outbox.replay(task_id)
    assert await failed_ids(outbox) == []
    again = await found(outbox, task_id)
    assert (again.state, again.attempts, again.created) == (State.WAITING, 0, first.created)
    assert again.log == first.log, "what was tried before is still told"
    for attempt in (1, 2, 3):
        claim = await claimed(outbox)
        assert (claim.id, claim.attempt) == (task_id, attempt)
        await outbox.record(claim, DOWN, "failed" if attempt == 3 else "retry")
    assert await failed_ids(outbox) == [task_id]
    assert len((await found(outbox, task_id)).log) == 4


@pytest.mark.parametrize(("outcome", "state"), [("failed", State.WAITING), ("delivered", State.DELIVERED)])
async def test_a_replay_during_the_last_attempt_counts_if_that_fails(
    store: TaskStore, outbox: Outbox, outcome: Outcome, state: State
) -> None:
    task_id = await one_ended(store)
    claim = await claimed(outbox)
    assert await outbox.replay(task_id)
    await outbox.record(claim, DOWN if outcome == "failed" else OK, outcome)
    assert (await found(outbox, task_id)).state == state
    assert await failed_ids(outbox) == []
    if outcome == "delivered":
        await outbox.replay(task_id)
    last = await claimed(outbox)
    assert last.attempt == 1
    await outbox.record(last, DOWN, "failed")
    assert await failed_ids(outbox) == [task_id], "one replay is one more round, not a hundred"


async def test_what_waits_for_its_next_try_gets_it_now(store: TaskStore, outbox: Outbox) -> None:
    task_id = await one_ended(store)
    await outbox.record(await claimed(outbox), DOWN, "retry", wait_s=HOUR_S)
    assert await outbox.claim(1) == []
    assert await outbox.replay(task_id)
    claim = await claimed(outbox)
    assert (claim.id, claim.attempt) == (task_id, 1)


async def test_what_is_being_sent_is_not_sent_twice_at_a_time(store: TaskStore, outbox: Outbox) -> None:
    task_id = await one_ended(store)
    claim = await claimed(outbox)
    assert await outbox.replay(task_id)
    assert await outbox.claim(10) == []
    assert await outbox.record(claim, OK, "delivered"), "its sender still has it"
    assert (await found(outbox, task_id)).state is State.DELIVERED


async def test_there_is_nothing_to_replay_of_a_task_that_has_no_delivery(store: TaskStore, outbox: Outbox) -> None:
    silent, active = await one_ended(store, url=None), hooked_task()
    await store.submit(active)
    before = await everything(store)
    for task_id in ("unknown", silent, active.id):
        assert not await outbox.replay(task_id)
    assert await everything(store) == before


async def test_a_replay_tries_a_receiver_that_is_left_alone(store: TaskStore) -> None:
    outbox = outbox_of(store, trips_after=1, shut_s=HOUR_S)
    task_id = await one_ended(store)
    await outbox.record(await claimed(outbox), DOWN, "failed", unwell=True)
    later = await one_ended(store)
    assert await outbox.claim(10) == []
    assert await outbox.replay(task_id)
    assert sorted(claim.id for claim in await outbox.claim(10)) == sorted([task_id, later])


# Pages.


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("failed", [False, True])
async def test_the_pages_hold_each_delivery_once_and_the_newest_first(
    store: TaskStore, limit: int, failed: bool
) -> None:
    outbox = outbox_of(store, per_receiver=100)
    ids = await ended(store, 4) + await ended(store, 3, OTHER_URL)
    for claim in await outbox.claim(100) if failed else []:
        await outbox.record(claim, DOWN, "failed")
    listed, cursor = [], None
    while True:
        page, cursor = await outbox.list_deliveries(limit=limit, cursor=cursor, failed=failed)
        assert len(page) <= limit
        listed += page
        if cursor is None:
            break
    assert sorted(delivery.id for delivery in listed) == sorted(ids)
    times = [(delivery.finished if failed else delivery.created) or 0 for delivery in listed]
    assert times == sorted(times, reverse=True)


# Retention.


async def swept(store: TaskStore) -> list[str]:
    """Has the retention of everything end, and the sweep run. What it named, and has forgotten by now."""
    key = f"{store.prefix}retention"
    await store.redis.zadd(key, dict.fromkeys(await members(store.redis, key), 1))
    named = await store.sweep()
    assert await store.sweep(named) == []
    return named


async def test_a_task_is_kept_while_its_webhook_is_on_its_way(store: TaskStore, outbox: Outbox) -> None:
    task_id = await one_ended(store)
    assert await swept(store) == [], "it waits"
    claim = await claimed(outbox)
    assert await swept(store) == [], "it is being sent"
    await outbox.record(claim, DOWN, "retry", wait_s=HOUR_S)
    assert await swept(store) == [], "it waits for its next try"
    await time_passes(outbox)
    await outbox.record(await claimed(outbox), OK, "delivered")
    assert await store.get(task_id) is not None
    assert await swept(store) == [task_id]
    assert await store.get(task_id) is None


@pytest.mark.parametrize("outcome", ["delivered", "failed"])
async def test_nothing_is_left_of_a_delivery_once_its_task_is_forgotten(
    store: TaskStore, outbox: Outbox, outcome: Outcome
) -> None:
    task_id = await ended_as(outbox, store, outcome)
    assert await swept(store) == [task_id]
    assert await outbox.get(task_id) is None
    assert not await outbox.replay(task_id)
    left = await everything(store)
    assert not [(key, value) for key, value in left.items() if task_id in key or task_id in str(value)]
    kinds = {key.removeprefix(store.prefix).partition(":")[0] for key in left}
    assert kinds.isdisjoint({"outbox", "sending", "receiver", "delivery", "attempts", "deliveries", "undelivered"})
