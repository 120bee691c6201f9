"""Models that a device has room for one at a time."""

from __future__ import annotations

import asyncio

from support.tasks import new_task

from serve_app.tasks.scripts import CancelOutcome, ReleaseOutcome
from serve_app.tasks.store import TaskStore

QUEUES = ("a", "b", "c")
LONG, NONE = 3600.0, 0.0
"""Seconds that a turn takes where others wait."""


async def test_a_model_keeps_its_turn_while_it_has_tasks_and_no_other_waits_for_long(store: TaskStore) -> None:
    assert await store.device_turn("gpu0", LONG, QUEUES) is None
    await store.submit(new_task(queue="b"))
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b"
    await store.submit(new_task(queue="a"))
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b"
    [lease] = await store.lease("b", 1, 10)
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b", "its last task is still at work"
    assert await store.release("b", lease.id, lease.attempt) is ReleaseOutcome.REQUEUED
    assert await store.device_turn("gpu0", LONG, QUEUES) == "b"
    assert await store.device_turn("gpu1", LONG, ("a", "c")) == "a", "on another device"


async def test_without_tasks_it_passes_on_at_once_and_with_tasks_after_its_time(store: TaskStore) -> None:
    """To whoever has waited longest, so a busy model can't keep the others out."""
    for _ in range(3):
        await store.submit(new_task(queue="a"))
    assert await store.device_turn("gpu0", LONG, QUEUES) == "a"
    for queue in ("c", "b"):
        await store.submit(new_task(queue=queue))
        assert await store.device_turn("gpu0", LONG, QUEUES) == "a"
        await asyncio.sleep(0.002)  # waits are counted in milliseconds
    assert [await store.device_turn("gpu0", NONE, QUEUES) for _ in range(2)] == ["c", "b"]
    [lease] = await store.lease("b", 1, 10)
    assert await store.cancel(lease.id, "p") is CancelOutcome.CANCELLED
    assert await store.device_turn("gpu0", LONG, QUEUES) == "a"
    await store.redis.config_set("maxmemory", 1)
    try:
        assert await store.device_turn("gpu0", NONE, QUEUES) == "c", "also in a full store"
    finally:
        await store.redis.config_set("maxmemory", 0)
