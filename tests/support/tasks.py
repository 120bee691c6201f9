"""Tasks for the store, and the steps that tests of it take again and again."""

from __future__ import annotations

import uuid
from typing import Any

from deployments.contract.request import MEGAPIXEL
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, NewTask, Status, Task
from support.payloads import new_payload

QUEUE = "model"
ALL = 1_000_000
"""More than any test has under way: a window that bounds nothing."""


def new_task(work: float = 1.0, **changes: Any) -> NewTask:
    """Returns a task that costs nothing, of the project `p`; `changes` are fields of `NewTask`."""
    task_id = changes.pop("id", None) or str(uuid.uuid4())
    defaults: dict[str, Any] = {
        "id": task_id,
        "project": "p",
        "queue": QUEUE,
        "endpoint": "gen-test",
        "payload": new_payload(steps=1, area=round(work * MEGAPIXEL)),
        # A key of its own: tests submit faster than any key may.
        "key_id": task_id,
        "reply": f'{{"id": "{task_id}"}}',
    }
    return NewTask(**(defaults | changes))


def with_limits(store: TaskStore, **limits: Any) -> TaskStore:
    """The same tasks under other limits."""
    return TaskStore(store.redis, store.prefix, Limits(**limits))


async def get_task(store: TaskStore, task_id: str) -> Task:
    """The record, which must be there."""
    task = await store.reads.get(task_id)
    assert task is not None
    return task


async def lease_one(store: TaskStore) -> Lease:
    """The only lease that there is to have."""
    (lease,) = await store.lease(QUEUE, 1, ALL)
    return lease


async def make_due(store: TaskStore, index: str) -> None:
    """Makes every entry of a time index due, in place of waiting. `index` is a key without the prefix."""
    key = store.prefix + index
    for member in await store.redis.zrange(key, 0, -1):
        await store.redis.zadd(key, {str(member): 1})


async def get_status(store: TaskStore, task_id: str) -> Status:
    return (await get_task(store, task_id)).status


async def assert_not_indexed(store: TaskStore, task_id: str) -> None:
    for index in ("queued", "quarantined", "leased", "deadlines"):
        assert await store.redis.zscore(f"{store.prefix}{index}:{QUEUE}", task_id) is None, index
    assert await store.redis.zscore(f"{store.prefix}active:p", task_id) is None
    assert not await store.redis.sismember(f"{store.prefix}exclusive:{QUEUE}", task_id)  # type: ignore[misc]
    assert await store.redis.zscore(f"{store.prefix}retention", task_id) is not None
