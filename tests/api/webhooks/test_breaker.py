"""The circuit breaker of a destination, and its calls at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import cast

import pytest
from support.deliveries import (
    DESTINATION,
    DOWN,
    HOUR_S,
    OK,
    OTHER_URL,
    claim_one,
    end_one_task,
    end_tasks,
    get_delivery,
    make_deliveries_due,
    make_outbox,
)

from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Claim, DeliveryOutcome, DeliveryState, DestinationHealth, Outbox

TRIPS = 3
PER_DESTINATION = 4


@pytest.fixture
def outbox(store: TaskStore) -> Outbox:
    policy = {"failure_threshold": TRIPS, "per_destination": PER_DESTINATION}
    return make_outbox(store, **policy, circuit_open_s=HOUR_S, max_circuit_open_s=4 * HOUR_S)


async def fails(outbox: Outbox, claim: Claim) -> None:
    assert await outbox.record(claim, DOWN, DeliveryOutcome.RETRY, health=DestinationHealth.DOWN)


async def trip(outbox: Outbox) -> None:
    for _ in range(TRIPS):
        await fails(outbox, await claim_one(outbox))


async def health(outbox: Outbox) -> dict[str, str]:
    key = f"{outbox.channel.removesuffix('outbox')}destination:{DESTINATION}"
    return await cast(Awaitable[dict[str, str]], outbox.redis.hgetall(key))


async def pause_s(outbox: Outbox) -> float:
    """Returns the seconds until the circuit is half open."""
    seconds, micros = await cast(Awaitable[tuple[int, int]], outbox.redis.time())
    return int((await health(outbox))["open_until"]) / 1000 - int(seconds) - int(micros) / 1e6


async def test_circuit_opens_at_the_failure_threshold(store: TaskStore, outbox: Outbox) -> None:
    await end_tasks(store, 20)
    await trip(outbox)
    await make_deliveries_due(outbox, pauses=False)
    assert await outbox.claim(10) == []
    other = await end_one_task(store, OTHER_URL)
    assert [claim.id for claim in await outbox.claim(10)] == [other]


async def test_answer_without_trouble_resets_the_failures(store: TaskStore, outbox: Outbox) -> None:
    await end_tasks(store, 20)
    for outcome in DeliveryOutcome:
        for _ in range(TRIPS - 1):
            await fails(outbox, await claim_one(outbox))
        await outbox.record(await claim_one(outbox), OK, outcome)
    assert await outbox.claim(10)


async def test_half_open_circuit_gets_one_call(store: TaskStore, outbox: Outbox) -> None:
    await end_tasks(store, 10)
    await trip(outbox)
    await make_deliveries_due(outbox)
    results = await asyncio.gather(*(outbox.claim(10) for _ in range(8)))
    [trial] = [claim for claims in results for claim in claims]
    await make_deliveries_due(outbox, claims=False)
    assert await outbox.claim(10) == [], "the trial is running"
    assert await outbox.record(trial, OK, DeliveryOutcome.DELIVERED)
    assert await health(outbox) == {"concurrency": "2"}
    assert len(await outbox.claim(10)) == 2


async def test_concurrency_follows_the_answers(store: TaskStore) -> None:
    outbox = make_outbox(store, per_destination=PER_DESTINATION)
    await end_tasks(store, 60)
    for answer in (replace(OK, took_s=5.0), OK, OK):
        claims = await outbox.claim(60)
        for claim in claims:
            await outbox.record(claim, answer, DeliveryOutcome.DELIVERED)
        assert len(claims) == PER_DESTINATION
    claims = await outbox.claim(60)
    assert len(claims) == PER_DESTINATION + 1
    for claim in claims[:3]:
        await fails(outbox, claim)
    assert len(await outbox.claim(60)) == 0, "three calls are still running"
    for claim in claims[3:]:
        await fails(outbox, claim)
    assert len(await outbox.claim(60)) == 1


async def test_open_time_doubles_up_to_the_maximum(store: TaskStore, outbox: Outbox) -> None:
    await end_tasks(store, 10)
    await trip(outbox)
    pauses = [await pause_s(outbox)]
    for _ in range(4):
        await make_deliveries_due(outbox)
        await fails(outbox, await claim_one(outbox))
        assert await outbox.claim(10) == [], "one failed trial opens the circuit again"
        pauses.append(await pause_s(outbox))
    assert [round(pause / HOUR_S, 1) for pause in pauses] == [1, 2, 4, 4, 4]


async def test_calls_that_fail_together_open_the_circuit_once(store: TaskStore, outbox: Outbox) -> None:
    await end_tasks(store, PER_DESTINATION)
    for claim in await outbox.claim(PER_DESTINATION):
        await fails(outbox, claim)
    assert (await health(outbox))["times_opened"] == "1"


async def set_age(store: TaskStore, task_id: str, age_s: float) -> None:
    since_ms = int((time.time() - age_s) * 1000)
    await cast(Awaitable[int], store.redis.hset(f"{store.prefix}delivery:{task_id}", "since", str(since_ms)))


async def test_untried_delivery_of_a_dead_destination_expires(store: TaskStore, outbox: Outbox) -> None:
    first = await end_one_task(store)
    await trip(outbox)
    old, young = await end_tasks(store, 2)
    await set_age(store, old, outbox.retries.max_age_s + 60)
    await set_age(store, young, outbox.retries.max_age_s - 60)
    await make_deliveries_due(outbox)
    assert [claim.id for claim in await outbox.claim(10)] == [first]
    expired = await get_delivery(outbox, old)
    assert (expired.state, expired.attempts, expired.next) == (DeliveryState.FAILED, 0, None)
    assert [attempt.error for attempt in expired.log] == ["the destination was never back"]
    assert (await get_delivery(outbox, young)).state is DeliveryState.WAITING


async def test_old_delivery_of_a_healthy_destination_is_tried(store: TaskStore, outbox: Outbox) -> None:
    task_id = await end_one_task(store)
    await set_age(store, task_id, outbox.retries.max_age_s + 60)
    assert [claim.id for claim in await outbox.claim(10)] == [task_id]


async def test_replay_closes_the_circuit(store: TaskStore) -> None:
    outbox = make_outbox(store, failure_threshold=1, circuit_open_s=HOUR_S)
    task_id = await end_one_task(store)
    await outbox.record(await claim_one(outbox), DOWN, DeliveryOutcome.FAILED, health=DestinationHealth.DOWN)
    later = await end_one_task(store)
    assert await outbox.claim(10) == []
    assert await outbox.replay(task_id)
    assert sorted(claim.id for claim in await outbox.claim(10)) == sorted([task_id, later])
