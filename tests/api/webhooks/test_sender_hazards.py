"""Senders that die, stop, lose Redis or meet dead receivers: every webhook arrives all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError
from support.deliveries import HOUR_S, LIMITS, ended, members, one_ended, outbox_of, time_passes, until
from support.receiver import Receiver, http, receiving
from support.sender import KEY, QUICK_S, SEALER, kill, outcome_of, running, sender_of, started

from serve_app.config.settings import WebhookSettings
from serve_app.encryption import Sealer, new_key
from serve_app.inputs.url_guard import receiver_of
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Claim, Outbox, State

CLAIM_S = 1.5


class Forgetful(Outbox):
    """Its sender loses Redis whenever it has something to record."""

    async def record(self, *args: Any, **options: Any) -> bool:
        raise ConnectionError("lost")


class Slow(Outbox):
    """Hands out claims only once it is let go."""

    def __init__(self, store: TaskStore) -> None:
        super().__init__(store.redis, store.prefix)
        self.claimed = asyncio.Event()
        self.let_go = asyncio.Event()

    async def claim(self, n: int) -> list[Claim]:
        claims = await super().claim(n)
        if claims:
            self.claimed.set()
            await self.let_go.wait()
        return claims


async def test_what_was_sent_but_not_recorded_is_sent_again_under_the_same_id(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store)
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(Forgetful(store.redis, store.prefix), store, tmp_path)):
        await receiver.has(1)
    await time_passes(outbox)
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert delivery.state is State.DELIVERED
    assert receiver.ids == [task_id] * 2
    assert delivery.attempts == 2
    assert delivery.log[0].error == "the sender was lost on the way"
    assert len({call.body for call in receiver.received}) == 1


async def test_what_a_killed_sender_had_on_its_way_another_one_sends(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store)
    receiver.replies = [receiver.hang] * 5
    ids = await ended(store, 5, receiver.url())
    victim = sender_of(outbox, store, tmp_path)
    loops = started(victim)
    await receiver.has(5)
    await kill(victim, loops)
    assert await outbox.claim(10) == [], "its claims have not run out yet"
    await time_passes(outbox)
    async with running(sender_of(outbox, store, tmp_path)):
        deliveries = await outcome_of(outbox, ids)
    assert {delivery.state for delivery in deliveries} == {State.DELIVERED}
    assert sorted(receiver.ids) == sorted(ids * 2)
    assert {delivery.attempts for delivery in deliveries} == {2}


async def test_calls_that_take_longer_than_a_claim_are_not_made_twice(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store, claim_s=CLAIM_S)
    receiver.reply = receiver.hang
    ids = await ended(store, 4, receiver.url())
    key = f"{store.prefix}sending:{receiver_of(receiver.url())} default"
    async with running(sender_of(outbox, store, tmp_path)), running(sender_of(outbox, store, tmp_path)):
        await receiver.has(4)
        first = max(await ends_of(store, key))

        async def prolonged_past_its_first_end() -> bool:
            ends = await ends_of(store, key)
            return len(ends) == 4 and min(ends) > first + 1000 * CLAIM_S

        await until(prolonged_past_its_first_end)
        receiver.let_go()
        deliveries = await outcome_of(outbox, ids)
    assert sorted(receiver.ids) == sorted(ids)
    assert {(delivery.state, delivery.attempts) for delivery in deliveries} == {(State.DELIVERED, 1)}


async def ends_of(store: TaskStore, key: str) -> list[float]:
    return [float(at) for _, at in await store.redis.zrange(key, 0, -1, withscores=True)]


async def test_senders_beside_each_other_make_each_delivery_once(store: TaskStore, tmp_path: Path) -> None:
    outbox = outbox_of(store, per_receiver=5)
    async with receiving() as one, receiving() as two:
        ids = await ended(store, 40, one.url()) + await ended(store, 40, two.url())
        senders = [sender_of(outbox, store, tmp_path) for _ in range(3)]
        async with running(senders[0]), running(senders[1]), running(senders[2]):
            await outcome_of(outbox, ids, State.DELIVERED)
        assert sorted(one.ids + two.ids) == sorted(ids)
        assert max(one.busiest, two.busiest) <= 5


async def test_a_sender_makes_so_many_calls_at_a_time_and_no_more(store: TaskStore, tmp_path: Path) -> None:
    outbox = outbox_of(store, concurrency=3, per_receiver=100)
    async with receiving() as receiver:
        receiver.reply = receiver.hang
        ids = await ended(store, 12, receiver.url())
        async with running(sender_of(outbox, store, tmp_path)):
            await receiver.has(3)
            assert len(await members(store.redis, f"{store.prefix}sending:{receiver_of(receiver.url())} default")) == 3
            receiver.let_go()
            await outcome_of(outbox, ids, State.DELIVERED)
        assert receiver.busiest <= 3


async def test_draining_finishes_what_is_on_its_way_and_begins_nothing(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store)
    receiver.reply = receiver.hang
    begun = await ended(store, 3, receiver.url())
    sender = sender_of(outbox, store, tmp_path)
    loops = started(sender)
    await receiver.has(3)
    drained = asyncio.create_task(sender.drain())
    await asyncio.sleep(0)
    later = await one_ended(store, receiver.url())
    assert not drained.done()
    receiver.let_go()
    await drained
    assert {delivery.state for delivery in await outcome_of(outbox, begun)} == {State.DELIVERED}
    await kill(sender, loops)
    assert sorted(receiver.ids) == sorted(begun)
    [left] = await outcome_of(outbox, [later], State.WAITING)
    assert left.attempts == 0


async def test_a_claim_that_comes_while_a_sender_drains_is_no_lost_attempt(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = Slow(store)
    task_id = await one_ended(store, receiver.url())
    sender = sender_of(outbox, store, tmp_path)
    loops = started(sender)
    await outbox.claimed.wait()
    drained = asyncio.create_task(sender.drain())
    await asyncio.sleep(0)
    outbox.let_go.set()
    await drained
    await until(lambda: _is_idle(sender))
    await kill(sender, loops)
    [delivery] = await outcome_of(outbox, [task_id], *State)
    finished = delivery.state is State.DELIVERED and receiver.ids == [task_id]
    untouched = delivery.state is State.WAITING and delivery.attempts == 0
    assert finished or untouched, delivery


async def _is_idle(sender: Any) -> bool:
    return not sender._running


async def test_a_sender_that_is_told_to_stop_just_as_it_hears_of_work_stops(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store)
    looks = 0

    class Counted(Outbox):
        async def claim(self, n: int) -> list[Claim]:
            nonlocal looks
            looks += 1
            return await super().claim(n)

    sender = sender_of(Counted(store.redis, store.prefix, outbox.policy), store, tmp_path)
    loops = started(sender)
    try:
        for times in range(1, 4):
            async with asyncio.timeout(60):
                while looks < times or not sender._look._waiters:
                    await asyncio.sleep(0)
            sender._look.set()
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await loops.stop()
    finally:
        await kill(sender, loops)


# Dead receivers.


async def test_a_dead_receiver_with_a_thousand_deliveries_keeps_nobody_waiting(
    store: TaskStore, receiver: Receiver, other_receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store, timeout_s=HOUR_S)
    receiver.reply = receiver.hang
    dead = await ended(store, 1000, receiver.url())
    well = await ended(store, 40, other_receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        await receiver.has(outbox.policy.per_receiver)
        await outcome_of(outbox, well, State.DELIVERED)
        later = await ended(store, 10, other_receiver.url())
        await outcome_of(outbox, later, State.DELIVERED)
        stuck = await outcome_of(outbox, dead, *State)
    assert sorted(other_receiver.ids) == sorted(well + later)
    assert receiver.busiest == len(receiver.received) == outbox.policy.per_receiver
    assert {delivery.state for delivery in stuck} == {State.WAITING, State.SENDING}
    assert not any(delivery.log for delivery in stuck), "not one of them came to an end meanwhile"


async def test_a_receiver_that_comes_back_gets_everything(store: TaskStore, receiver: Receiver, tmp_path: Path) -> None:
    outbox = outbox_of(
        store, schedule_s=(QUICK_S,) * 30, trips_after=3, shut_s=0.1, most_shut_s=0.2, timeout_s=10, jitter=0
    )
    receiver.replies = [http(503)] * 8
    ids = await ended(store, 20, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        await outcome_of(outbox, ids, State.DELIVERED)
    assert set(receiver.ids) == set(ids)
    assert len(receiver.received) == 28


async def test_a_secret_that_can_not_be_read_says_nothing_of_its_receiver(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store, trips_after=1)
    key = f"{store.prefix}receiver:{receiver_of(receiver.url())}"
    health = {"failures": "5", "times_shut": "3", "shut_until": "1"}
    await store.redis.hset(key, mapping=health)  # type: ignore[misc]
    task_id = await one_ended(store, receiver.url(), secret=Sealer([new_key()]).seal("lost"))
    async with running(sender_of(outbox, store, tmp_path)):
        await outcome_of(outbox, [task_id], State.FAILED)
    assert await store.redis.hgetall(key) == health  # type: ignore[misc]


async def test_secrets_of_an_earlier_key_still_sign(store: TaskStore, receiver: Receiver, tmp_path: Path) -> None:
    outbox = outbox_of(store)
    rotated = sender_of(outbox, store, tmp_path)
    rotated._sealer = Sealer([new_key(), KEY])
    task_id = await one_ended(store, receiver.url(), secret=SEALER.seal("the secret"))
    async with running(rotated):
        await outcome_of(outbox, [task_id], State.DELIVERED)
    assert "webhook-signature" in receiver.received[0].headers


# Redis.


@pytest.fixture
async def own_redis(tmp_path: Path) -> AsyncIterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


async def test_a_restart_of_redis_amid_deliveries_loses_none(
    own_redis: EmbeddedRedis, receiver: Receiver, other_receiver: Receiver, tmp_path: Path, prefix: str
) -> None:
    redis = connection.connect(own_redis.url)
    store = TaskStore(redis, prefix, LIMITS)
    outbox = Outbox(redis, prefix, WebhookSettings(claim_s=1, schedule_s=(QUICK_S,) * 5, per_receiver=4))
    receiver.reply = receiver.hang
    try:
        ids = await ended(store, 12, receiver.url()) + await ended(store, 12, other_receiver.url())
        async with running(sender_of(outbox, store, tmp_path)):
            await receiver.has(4)
            assert own_redis._process is not None
            own_redis._process.kill()
            own_redis._process.wait(60)
            receiver.let_go()
            own_redis.revive()
            deliveries = await outcome_of(outbox, ids)
            fresh = await one_ended(store, other_receiver.url())
            await outcome_of(outbox, [fresh], State.DELIVERED)
        assert {delivery.state for delivery in deliveries} == {State.DELIVERED}
        assert set(receiver.ids) | set(other_receiver.ids) == {*ids, fresh}
    finally:
        await redis.aclose()
