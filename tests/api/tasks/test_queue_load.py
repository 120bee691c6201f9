"""The load of a queue: its recent windows, and what the autoscaling policy reads."""

from __future__ import annotations

from threading import Thread
from types import SimpleNamespace

import pytest
from redis.asyncio import Redis
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, new_task

from serve_app.cluster.autoscaling import Load, WorkPolicy
from serve_app.tasks.queue_load import get_queue_load
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.tasks.windows import Window, WindowReader


@pytest.mark.parametrize(("fraction", "bucket"), [(0.01, 49), (0.5, 73), (0.95, 97)])
def test_quantiles_lie_in_their_buckets(fraction: float, bucket: int) -> None:
    window = Window(300, {"wait:49": 10, "wait:73": 80, "wait:97": 10, "run:1": 5})
    assert window.quantile("wait", fraction) == pytest.approx(1.1 ** (bucket - 0.5) / 1000)
    assert window.quantile("pace", fraction) is None


async def test_task_counts_once_when_it_ends(store: TaskStore) -> None:
    for _ in range(4):
        await store.submit(new_task(work=4.0))
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


async def test_prediction_error_compares_predicted_and_device_time(store: TaskStore) -> None:
    # The first task takes a second per unit of work, the second task one and a half.
    for work, device_s in ((2.0, 2.0), (4.0, 6.0)):
        await store.submit(new_task(work=work))
        [lease] = await store.lease(QUEUE, 1, ALL)
        assert (await WindowReader(store).read(QUEUE, "5m")).prediction_error is None
        await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT, device_s=device_s)
    assert (await WindowReader(store).read(QUEUE, "5m")).prediction_error == pytest.approx(2 / 6)


async def test_window_excludes_earlier_counts(store: TaskStore) -> None:
    minute = int(await store.reads.now() // 60)
    redis: Redis = store.redis
    for ago, count in ((0, 1), (4, 2), (5, 4), (59, 8), (60, 16)):
        await redis.hset(f"{store.prefix}recent:{QUEUE}:m:{minute - ago}", "Error", str(count))  # type: ignore[misc]
    reader = WindowReader(store)
    assert [(await reader.read(QUEUE, window)).errors for window in ("5m", "1h")] == [3, 15]
    await redis.hset(f"{store.prefix}recent:{QUEUE}:m:{minute}", "Error", "2")  # type: ignore[misc]
    assert (await reader.read(QUEUE, "5m")).errors == 4, "the current minute is not cached"


async def test_run_time_is_of_the_last_hour_or_day(store: TaskStore) -> None:
    now = await store.reads.now()
    for key, counts, run_s in (
        (f"timings:{QUEUE}", {"work:1000": 1, "work:sum": 900}, 0.9),
        (f"recent:{QUEUE}:q:{int(now // 900) - 90}", {"Ready": 2, "run_ms": 8000}, 4.0),
        (f"recent:{QUEUE}:m:{int(now // 60) - 50}", {"Ready": 2, "run_ms": 600}, 0.3),
    ):
        await store.redis.hset(f"{store.prefix}{key}", mapping=counts)  # type: ignore[misc]
        assert (await get_queue_load(store, WindowReader(store), QUEUE)).run_s == run_s


@pytest.fixture
def policy(store: TaskStore) -> WorkPolicy:
    return WorkPolicy(QUEUE, 30, store.prefix, "", None)


async def read(policy: WorkPolicy, store: TaskStore) -> Load:
    await policy.read(store.redis)
    return policy._forecast.load


async def test_work_is_unfinished_until_its_task_ends(store: TaskStore, policy: WorkPolicy) -> None:
    assert await read(policy, store) == Load()
    tasks = [new_task(work=work) for work in (4.0, 1.5, 2.25, 8.0)]
    for task in tasks:
        await store.submit(task)
    assert await read(policy, store) == Load(4, 15.75, 15.75, 4)
    first, second = await store.lease(QUEUE, 2, ALL)
    assert (await read(policy, store)).unfinished == 15.75
    await store.complete(QUEUE, first.id, first.attempt, Status.READY, result=RESULT, device_s=8.0)
    await store.release(QUEUE, second.id, second.attempt)
    assert await read(policy, store) == Load(3, 11.75, 15.75, 4, unit_s=2.0, device_s=8.0)
    for task in tasks[1:]:
        await store.cancel(task.id, "p")
    assert await read(policy, store) == Load(0, 0.0, 15.75, 4, unit_s=2.0, device_s=8.0)


async def test_no_task_is_leased_before_the_first_replica_exists(store: TaskStore, policy: WorkPolicy) -> None:
    await store.submit(new_task())
    await read(policy, store)
    config = SimpleNamespace(target_ongoing_requests=8)
    context = SimpleNamespace(current_num_replicas=0, target_num_replicas=0, config=config)
    policy._thread = Thread()  # a started one would read the store of a service
    assert policy(context)[0] > 0
    await read(policy, store)
    assert await store.lease(QUEUE, 1, ALL) == []
    context.current_num_replicas = 1
    policy(context)
    await read(policy, store)
    assert len(await store.lease(QUEUE, 1, ALL)) == 1
