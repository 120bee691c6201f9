"""A task with a webhook enters the outbox in the step that ends it, however it ends; no other task ever does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from support.deliveries import LIMITS, RECEIVER, URL, claimed, found, hooked_task, members
from support.tasks import LANE

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import Outbox, State

End = Callable[[TaskStore, str], Awaitable[None]]
"""Ends a leased task in its first attempt."""


def completed(status: Status) -> End:
    async def end(store: TaskStore, task_id: str) -> None:
        assert await store.complete(LANE, task_id, 1, status)

    return end


async def cancelled(store: TaskStore, task_id: str) -> None:
    assert await store.cancel(task_id, "p") == 1


async def past_its_deadline(store: TaskStore, task_id: str) -> None:
    await store.redis.zadd(f"{store.prefix}deadlines:{LANE}", {task_id: 1})
    assert await store.end_overdue(LANE) == 1


async def lost_too_often(store: TaskStore, task_id: str) -> None:
    for attempt in range(1, LIMITS.max_losses + 1):
        await store.advance(LANE, task_id, attempt, Status.GENERATING)
        await store.redis.zadd(f"{store.prefix}leased:{LANE}", {task_id: 1})
        assert await store.reap(LANE) == 1
        await store.lease(LANE, 1, 100)


async def struck_alone(store: TaskStore, task_id: str) -> None:
    for attempt in range(1, LIMITS.max_strikes + 1):
        await store.release(LANE, task_id, attempt, strike=True, alone=attempt == LIMITS.max_strikes)
        await store.lease(LANE, 1, 100)


ENDS: dict[str, End] = {
    "Ready": completed(Status.READY),
    "Error": completed(Status.ERROR),
    "Request Moderated": completed(Status.REQUEST_MODERATED),
    "Content Moderated": completed(Status.CONTENT_MODERATED),
    "cancelled": cancelled,
    "past its deadline": past_its_deadline,
    "reaped too often": lost_too_often,
    "died with its worker": struck_alone,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_webhook_is_due_once_the_task_has_ended_and_not_before(
    store: TaskStore, outbox: Outbox, end: End
) -> None:
    task = hooked_task()
    await store.submit(task)
    assert await outbox.get(task.id) is None
    await store.lease(LANE, 1, 100)
    assert await outbox.get(task.id) is None
    assert await outbox.claim(10) == []

    await end(store, task.id)
    ended = await store.get(task.id)
    assert ended is not None
    assert ended.status.terminal
    delivery = await found(outbox, task.id)
    assert (delivery.state, delivery.receiver, delivery.attempts) == (State.WAITING, RECEIVER, 0)
    assert (delivery.created, delivery.next, delivery.log) == (ended.finished, ended.finished, ())
    assert delivery.finished is None
    claim = await claimed(outbox)
    assert (claim.id, claim.attempt) == (task.id, 1)


async def test_ending_and_entering_are_one_call_to_the_store(
    store: TaskStore, outbox: Outbox, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for counted in (False, True):
        task = hooked_task()
        await store.submit(task)
        await store.lease(LANE, 1, 100)
        if not counted:  # the first time, the script itself may have to be brought to the server
            await store.complete(LANE, task.id, 1, Status.READY)
            continue
        calls: list[Any] = []
        execute = Redis.execute_command

        async def noted(self: Redis, *args: Any, **options: Any) -> Any:
            calls.append(args)  # noqa: B023 - this is the only round that gets here
            return await execute(self, *args, **options)  # noqa: B023

        monkeypatch.setattr(Redis, "execute_command", noted)
        await store.complete(LANE, task.id, 1, Status.READY)
        monkeypatch.undo()
        assert [call[0] for call in calls] == ["EVALSHA"]
        assert (await found(outbox, task.id)).state is State.WAITING


async def test_senders_hear_of_what_is_due(store: TaskStore, outbox: Outbox, redis: Redis) -> None:
    task = hooked_task()
    await store.submit(task)
    await store.lease(LANE, 1, 100)
    async with redis.pubsub() as pubsub, asyncio.timeout(60):
        await pubsub.subscribe(outbox.channel)
        while (message := await pubsub.get_message(timeout=1)) is None or message["type"] != "subscribe":
            pass
        await store.complete(LANE, task.id, 1, Status.READY)
        while (message := await pubsub.get_message(timeout=1)) is None:
            pass
    assert message["type"] == "message"


async def test_a_receiver_is_scheme_host_and_port(store: TaskStore, outbox: Outbox, redis: Redis) -> None:
    urls = [URL, "http://ONE.test:80/another?x=1", "https://one.test/hook", "http://one.test:8080/hook"]
    for url in urls:
        await store.submit(hooked_task(url))
    for lease in await store.lease(LANE, 10, 100):
        await store.complete(LANE, lease.id, 1, Status.READY)
    receivers = [f"{each} default" for each in ("http://one.test:80", "http://one.test:8080", "https://one.test:443")]
    assert sorted(await members(redis, outbox.channel)) == receivers
    assert len(await members(redis, f"{outbox.channel}:{RECEIVER}")) == 2
