"""The outbox: how tasks enter it, the order of claims, lists, counts and the sweep.

`test_outbox_machine.py` checks the invariants.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis
from support.deliveries import (
    DESTINATION,
    DOWN,
    HOUR_S,
    OK,
    OTHER_URL,
    URL,
    claim_one,
    destination_id,
    end_one_task,
    end_tasks,
    get_delivery,
    hooked_task,
    make_deliveries_due,
    make_outbox,
    members,
)
from support.tasks import QUEUE, get_task, lease_one

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import Backlog, Claim, DeliveryOutcome, DeliveryState, Outbox


async def test_webhook_is_due_in_the_step_that_ends_the_task(
    store: TaskStore, outbox: Outbox, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end_one_task(store, None)  # loads the script
    task = hooked_task()
    await store.submit(task)
    await lease_one(store)
    assert await outbox.get(task.id) is None
    assert await outbox.claim(10) == []
    calls: list[Any] = []
    execute = redis.execute_command

    async def record_call(*args: Any, **options: Any) -> Any:
        calls.append(args[0])
        return await execute(*args, **options)

    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(outbox.channel)
        assert (await pubsub.get_message(timeout=60) or {})["type"] == "subscribe"
        with monkeypatch.context() as patched:
            patched.setattr(redis, "execute_command", record_call)
            await store.complete(QUEUE, task.id, 1, Status.CONTENT_MODERATED)
        assert (await pubsub.get_message(timeout=60) or {})["type"] == "message", "senders are woken"
    assert calls == ["EVALSHA"]
    finished = (await get_task(store, task.id)).finished
    delivery = await get_delivery(outbox, task.id)
    assert (delivery.state, delivery.destination.encode(), delivery.attempts) == (DeliveryState.WAITING, DESTINATION, 0)
    assert (delivery.created, delivery.next, delivery.finished, delivery.log) == (finished, finished, None, ())
    claim = await claim_one(outbox)
    assert (claim.id, claim.attempt) == (task.id, 1)


async def test_destination_is_scheme_host_and_port(store: TaskStore, outbox: Outbox, redis: Redis) -> None:
    for url in (URL, "http://ONE.test:80/another?x=1", "https://one.test/hook", "http://one.test:8080/hook"):
        await end_one_task(store, url)
    destinations = [
        destination_id(url) for url in ("http://one.test:80", "http://one.test:8080", "https://one.test:443")
    ]
    assert sorted(await members(redis, outbox.channel)) == destinations
    assert len(await members(redis, f"{outbox.channel}:{DESTINATION}")) == 2


async def test_organization_at_its_limit_hinders_no_other(store: TaskStore, redis: Redis) -> None:
    # More destinations are due, and for longer, than one call visits.
    outbox = make_outbox(store, per_organization=2)
    for number in range(5):
        await end_tasks(store, 1, f"http://destination-{number}.test/")
    claims = await outbox.claim(10)
    assert len(claims) == 2
    await redis.zadd(outbox.channel, {destination_id(f"http://never-{number}.test"): number for number in range(5000)})
    late = await end_tasks(store, 1, OTHER_URL, organization="acme")
    assert [claim.id for _ in range(4) for claim in await outbox.claim(10)] == late
    await outbox.record(claims[0], OK, DeliveryOutcome.DELIVERED)
    await make_deliveries_due(outbox, claims=False)
    assert len([claim for _ in range(200) for claim in await outbox.claim(10)]) == 1


async def test_oldest_deliveries_of_a_destination_come_first(store: TaskStore) -> None:
    outbox = make_outbox(store, per_destination=100)
    ids = await end_tasks(store, 4)
    turns = dict(zip(ids, (3, 1, 4, 2), strict=True))
    await store.redis.zadd(f"{store.prefix}outbox:{DESTINATION}", turns)
    assert [(await claim_one(outbox)).id for _ in ids] == sorted(ids, key=turns.__getitem__)


async def test_waits_and_claims_last_as_long_as_set(store: TaskStore, redis: Redis) -> None:
    outbox = make_outbox(store, claim_s=90)
    waiting, claimed = await end_tasks(store, 2)
    await redis.zadd(f"{store.prefix}outbox:{DESTINATION}", {waiting: 1})
    await outbox.record(await claim_one(outbox), DOWN, DeliveryOutcome.RETRY, wait_s=60)
    delivery = await get_delivery(outbox, waiting)
    assert delivery.next == pytest.approx(time.time() + 60, abs=30)
    assert (await claim_one(outbox)).id == claimed
    assert await redis.zscore(f"{store.prefix}sending:{DESTINATION}", claimed) == pytest.approx(
        (time.time() + 90) * 1000, abs=30_000
    )
    assert await redis.zscore(outbox.channel, DESTINATION) == (delivery.next or 0) * 1000


async def test_lost_claims_keep_the_retry_schedule(store: TaskStore) -> None:
    outbox = make_outbox(store, schedule_s=(HOUR_S, 3 * HOUR_S))
    task_id = await end_one_task(store)
    waits_s = []
    for attempt in (1, 2, 3):
        assert (await claim_one(outbox)).attempt == attempt
        await make_deliveries_due(outbox, waits=False)
        assert await outbox.claim(10) == []
        delivery = await get_delivery(outbox, task_id)
        if delivery.next is not None:
            waits_s.append(delivery.next - time.time())
        await make_deliveries_due(outbox)
    assert waits_s == pytest.approx([HOUR_S, 3 * HOUR_S], abs=60)
    assert (delivery.state, len(delivery.log)) == (DeliveryState.FAILED, 3)


async def test_delivery_written_by_0_2_is_claimed(store: TaskStore, outbox: Outbox) -> None:
    task = hooked_task(organization="acme")
    await store.submit(task)
    await store.redis.hset(f"{store.prefix}task:{task.id}", "webhook_destination", "http://one.test:80 acme")  # type: ignore[misc]
    await store.cancel(task.id, "p")
    claim = await claim_one(outbox)
    assert (claim.id, claim.organization) == (task.id, "acme")
    assert await members(store.redis, f"{store.prefix}calls:acme") == [task.id]
    assert (await get_delivery(outbox, task.id)).destination == ("http://one.test:80", "acme")
    assert await outbox.record(claim, OK, DeliveryOutcome.DELIVERED)
    assert await members(store.redis, f"{store.prefix}calls:acme") == []


async def test_stale_claim_neither_prolongs_nor_records(store: TaskStore, outbox: Outbox) -> None:
    ids = await end_tasks(store, 2)
    current, stale = await outbox.claim(2)
    await store.redis.zadd(f"{store.prefix}sending:{DESTINATION}", dict.fromkeys(ids, 1))
    await outbox.prolong([])
    await outbox.prolong([current, replace(stale, number=stale.number + 1), Claim("unknown", 1, 1, "default")])
    await make_deliveries_due(outbox, claims=False)
    assert await outbox.claim(10) == []
    await make_deliveries_due(outbox, claims=False)
    assert [claim.id for claim in await outbox.claim(10)] == [stale.id]
    assert not await outbox.record(stale, OK, DeliveryOutcome.DELIVERED)
    assert (await get_delivery(outbox, stale.id)).state is DeliveryState.SENDING
    assert await outbox.record(current, OK, DeliveryOutcome.DELIVERED)


async def test_sweep_is_bounded_and_passes_undelivered_tasks(store: TaskStore, redis: Redis) -> None:
    undelivered = [f"waiting-{number}" for number in range(2500)]  # more than one scan of the script
    pipe = redis.pipeline(transaction=False)
    for task_id in undelivered:
        pipe.hset(f"{store.prefix}delivery:{task_id}", "state", "waiting")
    await pipe.execute()
    free = await end_tasks(store, 25, url=None)
    key = f"{store.prefix}retention"
    await redis.zadd(key, dict.fromkeys(undelivered, 1) | dict.fromkeys(free, 2))
    swept: list[str] = []
    while batch := await store.sweep(swept[-10:], limit=10):
        assert len(batch) <= 10
        swept += batch
    assert sorted(swept) == sorted(free)
    assert len(await members(redis, key)) == len(undelivered)


async def test_outcomes_and_delays_are_counted(store: TaskStore) -> None:
    outbox = make_outbox(store, schedule_s=(60,))
    task_id = await end_one_task(store)
    await outbox.record(await claim_one(outbox), DOWN, DeliveryOutcome.RETRY, wait_s=60)
    assert (await outbox.count_outcomes())[0] == {"delivered": 0, "failed": 0, "put_off": 1}
    await make_deliveries_due(outbox)
    await outbox.record(await claim_one(outbox), DOWN, DeliveryOutcome.FAILED)
    counts, delay = await outbox.count_outcomes()
    assert (counts["failed"], delay.count) == (1, 0)
    await outbox.replay(task_id)
    await store.redis.hincrby(f"{store.prefix}delivery:{task_id}", "since", -90_000)  # type: ignore[misc]
    await outbox.record(await claim_one(outbox), OK, DeliveryOutcome.DELIVERED)
    counts, delay = await outbox.count_outcomes()
    assert counts == {"delivered": 1, "failed": 1, "put_off": 1}
    assert (delay.count, delay.sum >= 90) == (1, True)
    assert dict(delay.buckets)[300.0] - dict(delay.buckets)[60.0] == 1


async def test_backlog_counts_unfinished_deliveries(store: TaskStore, outbox: Outbox) -> None:
    assert await outbox.backlog() == Backlog(0, 0)
    first, _ = await end_one_task(store), await end_one_task(store)
    await store.redis.zincrby(f"{store.prefix}pending", -90_000, first)
    backlog = await outbox.backlog()
    assert backlog.deliveries == 2
    assert 90 <= backlog.oldest_s < 120
    for claim in await outbox.claim(2):
        assert (await outbox.backlog()).deliveries >= 1
        await outbox.record(claim, OK, DeliveryOutcome.DELIVERED)
    assert await outbox.backlog() == Backlog(0, 0)
