"""Senders that die, stop or lose Redis, and dead destinations: every webhook arrives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from redis.exceptions import ConnectionError
from support.deliveries import (
    HOUR_S,
    LIMITS,
    destination_id,
    end_one_task,
    end_tasks,
    make_deliveries_due,
    make_outbox,
    members,
    until,
)
from support.webhook_receiver import WebhookReceiver
from support.webhook_senders import QUICK_S, kill, make_sender, running, start_sender, wait_for_states

from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import DeliveryState, Outbox


class Forgetful(Outbox):
    """Loses Redis at every record."""

    async def record(self, *args: Any, **options: Any) -> bool:
        raise ConnectionError("lost")


async def test_unrecorded_delivery_is_repeated_with_its_id(
    store: TaskStore, destination: WebhookReceiver, tmp_path: Path
) -> None:
    outbox = make_outbox(store, schedule_s=(QUICK_S,))
    task_id = await end_one_task(store, destination.url())
    async with running(make_sender(Forgetful(store.redis, store.prefix), store, tmp_path)):
        await destination.has(1)
    await make_deliveries_due(outbox)
    async with running(make_sender(outbox, store, tmp_path)):
        [delivery] = await wait_for_states(outbox, [task_id])
    assert delivery.state is DeliveryState.DELIVERED
    assert destination.ids == [task_id] * 2
    assert delivery.log[0].error == "the sender was lost on the way"
    assert len({call.body for call in destination.received}) == 1


async def test_deliveries_of_a_killed_sender_are_repeated(
    store: TaskStore, destination: WebhookReceiver, tmp_path: Path
) -> None:
    outbox = make_outbox(store, concurrency=3, per_destination=100, schedule_s=(QUICK_S,))
    destination.replies = [destination.hang] * 3
    ids = await end_tasks(store, 5, destination.url())
    victim = make_sender(outbox, store, tmp_path)
    loops = start_sender(victim)
    await destination.has(3)
    assert len(await members(store.redis, f"{store.prefix}calls:default")) == 3, "the sender's concurrency"
    await kill(victim, loops)
    first_ids = list(destination.ids)
    await make_deliveries_due(outbox)
    async with running(make_sender(outbox, store, tmp_path)):
        deliveries = await wait_for_states(outbox, ids)
    assert {delivery.state for delivery in deliveries} == {DeliveryState.DELIVERED}
    assert sorted(destination.ids) == sorted(ids + first_ids)


async def test_call_longer_than_a_claim_is_made_once(
    store: TaskStore, destination: WebhookReceiver, tmp_path: Path
) -> None:
    outbox = make_outbox(store, claim_s=1.5)
    destination.reply = destination.hang
    task_id = await end_one_task(store, destination.url())
    key = f"{store.prefix}sending:{destination_id(destination.url())}"
    async with running(make_sender(outbox, store, tmp_path)):
        await destination.has(1)
        first_end = await store.redis.zscore(key, task_id) or 0

        async def prolonged() -> bool:
            return (await store.redis.zscore(key, task_id) or 0) > first_end

        await until(prolonged)
        destination.resume()
        [delivery] = await wait_for_states(outbox, [task_id])
    assert destination.ids == [task_id]
    assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 1)


async def test_drain_finishes_running_deliveries_only(
    store: TaskStore, destination: WebhookReceiver, tmp_path: Path
) -> None:
    outbox = make_outbox(store)
    destination.reply = destination.hang
    running_ids = await end_tasks(store, 3, destination.url())
    sender = make_sender(outbox, store, tmp_path)
    loops = start_sender(sender)
    await destination.has(3)
    drained = asyncio.create_task(sender.drain())
    await asyncio.sleep(0)
    later = await end_one_task(store, destination.url())
    assert not drained.done()
    destination.resume()
    await drained
    assert {delivery.state for delivery in await wait_for_states(outbox, running_ids)} == {DeliveryState.DELIVERED}
    await kill(sender, loops)
    assert sorted(destination.ids) == sorted(running_ids)
    [waiting] = await wait_for_states(outbox, [later], DeliveryState.WAITING)
    assert waiting.attempts == 0


async def test_dead_destination_delays_no_other(
    store: TaskStore, destination: WebhookReceiver, other_destination: WebhookReceiver, tmp_path: Path
) -> None:
    outbox = make_outbox(store, timeout_s=HOUR_S, concurrency=50)
    destination.reply = destination.hang
    dead = await end_tasks(store, 2 * outbox.settings.concurrency, destination.url())
    live = await end_tasks(store, 40, other_destination.url())
    async with running(make_sender(outbox, store, tmp_path)):
        await wait_for_states(outbox, live, DeliveryState.DELIVERED)
        await destination.has(outbox.settings.per_destination)
        stuck = await wait_for_states(outbox, dead, *DeliveryState)
    assert sorted(other_destination.ids) == sorted(live)
    assert destination.busiest == len(destination.received) == outbox.settings.per_destination
    assert {delivery.state for delivery in stuck} == {DeliveryState.WAITING, DeliveryState.SENDING}


async def test_redis_restart_loses_no_delivery(
    doomed_redis: EmbeddedRedis, destination: WebhookReceiver, tmp_path: Path, prefix: str
) -> None:
    redis = connection.connect(doomed_redis.url)
    store = TaskStore(redis, prefix, LIMITS)
    outbox = make_outbox(store, claim_s=1, schedule_s=(QUICK_S,) * 5, per_destination=4)
    destination.reply = destination.hang
    try:
        ids = await end_tasks(store, 12, destination.url())
        async with running(make_sender(outbox, store, tmp_path)):
            await destination.has(4)
            assert doomed_redis._process is not None
            doomed_redis._process.kill()
            doomed_redis._process.wait(60)
            destination.resume()
            doomed_redis.revive()
            await wait_for_states(outbox, ids)
            ids.append(await end_one_task(store, destination.url()))
            deliveries = await wait_for_states(outbox, ids)
        assert {delivery.state for delivery in deliveries} == {DeliveryState.DELIVERED}
        assert set(destination.ids) == set(ids)
    finally:
        await redis.aclose()
