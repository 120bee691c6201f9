"""Notifications of ended or changed tasks, and the limit of their watchers."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError

from serve_app import background
from serve_app.tasks.notifications import TaskNotifications, WatcherLimit

PATIENCE_S = 10.0


@pytest.mark.parametrize("error", [AttributeError("foreign"), ConnectionError("Redis is away")])
async def test_subscription_survives_any_exception(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    errors, subscribe = [error, error], PubSub.subscribe

    async def fail_twice(pubsub: PubSub, *channels: str) -> Any:
        if errors:
            raise errors.pop()
        return await subscribe(pubsub, *channels)

    monkeypatch.setattr(PubSub, "subscribe", fail_twice)
    notifications = TaskNotifications(redis, "n:")
    async with asyncio.timeout(PATIENCE_S):
        with notifications.expect("task") as event:
            await event.wait()  # set by the subscription itself
            event.clear()
            await redis.publish("n:done", "task")
            await event.wait()
    notifications.check()
    await notifications.close()


async def test_check_fails_once_the_subscription_fails_for_long(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = asyncio.Semaphore(0)

    async def fail(pubsub: PubSub, *channels: str) -> None:
        attempts.release()
        raise AttributeError("foreign")

    monkeypatch.setattr(PubSub, "subscribe", fail)
    monkeypatch.setattr(background, "FAILS_S", 0.0)
    notifications = TaskNotifications(redis, "n:")
    with notifications.expect("task"):
        async with asyncio.timeout(PATIENCE_S):
            await attempts.acquire()
            await attempts.acquire()
        with pytest.raises(RuntimeError, match="task notifications"):
            notifications.check()
    await notifications.close()


def acquire(watchers: WatcherLimit, stack: ExitStack, task: str, times: int) -> int:
    """Returns the number of accepted watchers."""
    return sum(stack.enter_context(watchers.acquire(task)) for _ in range(times))


def test_watchers_of_one_task_and_of_all_tasks_are_limited() -> None:
    watchers = WatcherLimit(2000)
    for _ in range(2):
        with ExitStack() as stack:
            assert acquire(watchers, stack, "one", 100) == 32
            assert acquire(watchers, stack, "other", 10) == 10
    watchers = WatcherLimit(100)
    with ExitStack() as stack:
        assert sum(acquire(watchers, stack, f"{number}", 10) for number in range(10)) == 75
        assert acquire(watchers, stack, "late", 1) == 0
    with ExitStack() as stack:
        assert acquire(watchers, stack, "late", 1) == 1
