"""How long tasks waited and took is counted once per task, in the step that ends the wait."""

from __future__ import annotations

from redis.asyncio import Redis
from support.tasks import LANE, lease_one, new_task

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.tasks.views import WAIT, WORK, timings

HOUR_MS = 3_600_000


async def started(store: TaskStore, waited_ms: int = 0) -> str:
    """A task that was begun after so long a wait."""
    task = new_task()
    await store.submit(task)
    await store.redis.hincrby(f"{store.prefix}task:{task.id}", "created", -waited_ms)  # type: ignore[misc]
    await lease_one(store)
    for progress in (0.0, 0.5):
        await store.advance(LANE, task.id, 1, Status.GENERATING, progress=progress)
    return task.id


async def test_a_wait_is_counted_when_work_begins(store: TaskStore, redis: Redis, prefix: str) -> None:
    for waited_ms in (0, 700, 2 * HOUR_MS):
        await started(store, waited_ms)
    found = (await timings(redis, prefix, LANE))[WAIT]
    counted = dict(found.buckets)
    assert (counted[0.5], counted[1.0], counted[3600.0], counted[float("inf")]) == (1, 2, 2, 3)
    assert found.sum >= 2 * 3600 + 0.7


async def test_work_is_counted_for_results_alone(store: TaskStore, redis: Redis, prefix: str) -> None:
    for status in (Status.READY, Status.ERROR, Status.CONTENT_MODERATED):
        await store.complete(LANE, await started(store), 1, status)
    task = new_task()
    await store.submit(task)
    await store.cancel(task.id, "p")
    found = await timings(redis, prefix, LANE)
    assert found[WORK].buckets[-1] == (float("inf"), 1)
    assert found[WAIT].buckets[-1] == (float("inf"), 3)
