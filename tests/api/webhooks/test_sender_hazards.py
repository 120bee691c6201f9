"""Senders that die, stop, lose Redis or meet dead destinations: every webhook arrives all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError
from support.deliveries import (
    HOUR_S,
    LIMITS,
    destination_id,
    end_one_task,
    end_tasks,
    make_deliveries_due,
    make_outbox,
    until,
)
from support.webhook_receiver import WebhookReceiver
from support.webhook_senders import QUICK_S, kill, make_sender, running, start_sender, wait_for_states

from serve_app.config.settings import WebhookSettings
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import DeliveryState, Outbox

CLAIM_S = 1.5


class Forgetful(Outbox):
    """Its sender loses Redis whenever it has something to record."""

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
    assert delivery.attempts == 2
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
    assert len(await get_ends(store, f"{store.prefix}calls:default")) == 3, "so many at a time and no more"
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
    outbox = make_outbox(store, claim_s=CLAIM_S)
    destination.reply = destination.hang
    ids = await end_tasks(store, 4, destination.url())
    key = f"{store.prefix}sending:{destination_id(destination.url())}"
    async with running(make_sender(outbox, store, tmp_path)), running(make_sender(outbox, store, tmp_path)):
        await destination.has(4)
        first = max(await get_ends(store, key))

        async def prolonged_past_its_first_end() -> bool:
            ends = await get_ends(store, key)
            return len(ends) == 4 and min(ends) > first + 1000 * CLAIM_S

        await until(prolonged_past_its_first_end)
        destination.resume()
        deliveries = await wait_for_states(outbox, ids)
    assert sorted(destination.ids) == sorted(ids)
    assert {(delivery.state, delivery.attempts) for delivery in deliveries} == {(DeliveryState.DELIVERED, 1)}


async def get_ends(store: TaskStore, key: str) -> list[float]:
    return [float(at) for _, at in await store.redis.zrange(key, 0, -1, withscores=True)]


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
    outbox = make_outbox(store, timeout_s=HOUR_S)
    destination.reply = destination.hang
    dead = await end_tasks(store, 1000, destination.url())
    well = await end_tasks(store, 40, other_destination.url())
    async with running(make_sender(outbox, store, tmp_path)):
        await destination.has(outbox.settings.per_destination)
        await wait_for_states(outbox, well, DeliveryState.DELIVERED)
        later = await end_tasks(store, 10, other_destination.url())
        await wait_for_states(outbox, later, DeliveryState.DELIVERED)
        stuck = await wait_for_states(outbox, dead, *DeliveryState)
    assert sorted(other_destination.ids) == sorted(well + later)
    assert destination.busiest == len(destination.received) == outbox.settings.per_destination
    assert {delivery.state for delivery in stuck} == {DeliveryState.WAITING, DeliveryState.SENDING}
    assert not any(delivery.log for delivery in stuck), "not one of them came to an end meanwhile"


@pytest.fixture
async def own_redis(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


async def test_redis_restart_loses_no_delivery(
    own_redis: EmbeddedRedis,
    destination: WebhookReceiver,
    other_destination: WebhookReceiver,
    tmp_path: Path,
    prefix: str,
) -> None:
    redis = connection.connect(own_redis.url)
    store = TaskStore(redis, prefix, LIMITS)
    outbox = Outbox(redis, prefix, WebhookSettings(claim_s=1, schedule_s=(QUICK_S,) * 5, per_destination=4))
    destination.reply = destination.hang
    try:
        ids = await end_tasks(store, 12, destination.url()) + await end_tasks(store, 12, other_destination.url())
        async with running(make_sender(outbox, store, tmp_path)):
            await destination.has(4)
            assert own_redis._process is not None
            own_redis._process.kill()
            own_redis._process.wait(60)
            destination.resume()
            own_redis.revive()
            deliveries = await wait_for_states(outbox, ids)
            fresh = await end_one_task(store, other_destination.url())
            await wait_for_states(outbox, [fresh], DeliveryState.DELIVERED)
        assert {delivery.state for delivery in deliveries} == {DeliveryState.DELIVERED}
        assert set(destination.ids) | set(other_destination.ids) == {*ids, fresh}
    finally:
        await redis.aclose()
