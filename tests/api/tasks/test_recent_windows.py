"""Recent time of a queue: what its tasks count, and that what is longer ago than a window is no part of it."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, new_task

from serve_app.tasks.queue_load import get_queue_load
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.tasks.windows import Window, WindowReader


@pytest.mark.parametrize(("fraction", "bucket"), [(0.01, 49), (0.5, 73), (0.95, 97)])
def test_quantiles_lie_in_their_buckets(fraction: float, bucket: int) -> None:
    window = Window(300, {"wait:49": 10, "wait:73": 80, "wait:97": 10, "run:1": 5})
    assert window.quantile("wait", fraction) == pytest.approx(1.1 ** (bucket - 0.5) / 1000)
    assert window.quantile("pace", fraction) is None


async def test_each_task_counts_once_as_it_ends(store: TaskStore) -> None:
    for work in (4.0, 4.0, 4.0, 4.0):
        await store.submit(new_task(work=work))
    ready, failed, cancelled = await store.lease(QUEUE, 3, ALL)
    for lease in (ready, failed, cancelled):
        await store.advance(QUEUE, lease.id, lease.attempt, Status.GENERATING)
        await store.redis.hincrby(f"{store.prefix}task:{lease.id}", "started", -2000)  # type: ignore[misc]
    await store.complete(QUEUE, ready.id, ready.attempt, Status.READY, result=RESULT, device_s=2.5)
    await store.complete(QUEUE, failed.id, failed.attempt, Status.ERROR)
    await store.cancel(cancelled.id, "p")
    for window in ("5m", "1h", "24h"):
        recent = await WindowReader(store).read(QUEUE, window)
        assert (recent.accepted, recent.ready, recent.errors, recent.device_s) == (4, 1, 1, 2.5)
        assert recent.counts["cancelled"] == 1
        run, pace, wait = recent.quantile("run", 0.5), recent.quantile("pace", 0.5), recent.quantile("wait", 0.5)
        assert (run, pace, wait) == (pytest.approx(2, rel=0.1), pytest.approx(0.5, rel=0.1), pytest.approx(0, abs=1))
        assert recent.pace == pytest.approx(0.5, rel=0.05)


async def test_predictions_are_compared_with_what_tasks_took(store: TaskStore) -> None:
    """The first task shows that a unit of work takes a second; the second one takes a second and a half."""
    for work, device_s in ((2.0, 2.0), (4.0, 6.0)):
        await store.submit(new_task(work=work))
        [lease] = await store.lease(QUEUE, 1, ALL)
        assert (await WindowReader(store).read(QUEUE, "5m")).prediction_error is None
        await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT, device_s=device_s)
    assert (await WindowReader(store).read(QUEUE, "5m")).prediction_error == pytest.approx(2 / 6)


async def test_what_is_longer_ago_is_no_part_of_a_window(store: TaskStore) -> None:
    minute = int(await store.reads.now() // 60)
    redis: Redis = store.redis
    for ago, count in ((0, 1), (4, 2), (5, 4), (59, 8), (60, 16)):
        await redis.hset(f"{store.prefix}recent:{QUEUE}:m:{minute - ago}", "Error", str(count))  # type: ignore[misc]
    reader = WindowReader(store)
    assert [(await reader.read(QUEUE, window)).errors for window in ("5m", "1h")] == [3, 15]
    await redis.hset(f"{store.prefix}recent:{QUEUE}:m:{minute}", "Error", "2")  # type: ignore[misc]
    assert (await reader.read(QUEUE, "5m")).errors == 4, "the present minute is read anew"


async def test_how_long_tasks_run_is_of_the_last_hour_else_of_the_day_else_of_all_time(store: TaskStore) -> None:
    now = await store.reads.now()
    for key, counts, run_s in (
        (f"timings:{QUEUE}", {"work:1000": 1, "work:sum": 900}, 0.9),
        (f"recent:{QUEUE}:q:{int(now // 900) - 90}", {"Ready": 2, "run_ms": 8000}, 4.0),
        (f"recent:{QUEUE}:m:{int(now // 60) - 50}", {"Ready": 2, "run_ms": 600}, 0.3),
    ):
        await store.redis.hset(f"{store.prefix}{key}", mapping=counts)  # type: ignore[misc]
        assert (await get_queue_load(store, WindowReader(store), QUEUE)).run_s == run_s
