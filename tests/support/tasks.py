"""Tasks, and steps that tests of the task store share."""

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
"""A lease window above the number of tasks in any test."""


def new_task(work: float = 1.0, **changes: Any) -> NewTask:
    """Returns a task that costs nothing, of the project `p`; `changes` are fields of `NewTask`."""
    task_id = changes.pop("id", None) or str(uuid.uuid4())
    defaults: dict[str, Any] = {
        "id": task_id,
        "project": "p",
        "queue": QUEUE,
        "endpoint": "gen-test",
        "payload": new_payload(steps=1, area=round(work * MEGAPIXEL)),
        # One key per task: tests submit faster than the rate limit of a key.
        "key_id": task_id,
        "reply": f'{{"id": "{task_id}"}}',
    }
    return NewTask(**(defaults | changes))


def with_limits(store: TaskStore, **limits: Any) -> TaskStore:
    """Returns a store of the same tasks with other limits."""
    return TaskStore(store.redis, store.prefix, Limits(**limits))


async def get_task(store: TaskStore, task_id: str) -> Task:
    task = await store.reads.get(task_id)
    assert task is not None
    return task


async def lease_one(store: TaskStore) -> Lease:
    """Leases a task; exactly one must be queued."""
    (lease,) = await store.lease(QUEUE, 1, ALL)
    return lease


async def make_due(store: TaskStore, index: str) -> None:
    """Makes every entry of a time index due. `index` is a key without the prefix."""
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
