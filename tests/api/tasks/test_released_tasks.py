"""Tasks that a worker gives back: crashes, quarantine and deadlines."""

from __future__ import annotations

import pytest
from support.payloads import RESULT
from support.tasks import QUEUE, assert_not_indexed, get_status, get_task, lease_one, make_due, new_task, with_limits

from serve_app.tasks.scripts import ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


@pytest.fixture
def short(store: TaskStore) -> TaskStore:
    """A store whose tasks may wait for 1000 s and work for 50 s."""
    return with_limits(store, queue_s=1000, run_s=50)


async def submit_tasks(store: TaskStore, n: int = 1) -> list[str]:
    tasks = [new_task() for _ in range(n)]
    for task in tasks:
        await store.submit(task)
    return [task.id for task in tasks]


async def crash_twice(store: TaskStore, n: int = 1) -> None:
    for attempt in (1, 2):
        for lease in await store.lease(QUEUE, n, 100):
            assert not lease.exclusive
            await store.advance(QUEUE, lease.id, attempt, Status.GENERATING)
            assert await store.release(QUEUE, lease.id, attempt, ReleaseCause.CRASH) is ReleaseOutcome.REQUEUED


async def deadline(store: TaskStore, task_id: str) -> float:
    score = await store.redis.zscore(f"{store.prefix}deadlines:{QUEUE}", task_id)
    assert score is not None
    return score / 1000


async def test_quarantined_tasks_run_alone_one_at_a_time(store: TaskStore) -> None:
    quarantined = await submit_tasks(store, 3)
    await crash_twice(store, 3)
    [other] = await submit_tasks(store)
    first, second = await store.lease(QUEUE, 5, 100)
    assert {first.id: first.exclusive, second.id: second.exclusive} == {quarantined[0]: True, other: False}
    assert await store.lease(QUEUE, 3, 100) == []
    await store.complete(QUEUE, first.id, first.attempt, Status.READY, result=RESULT)
    assert len(await store.lease(QUEUE, 3, 100)) == 1


async def test_shared_crashes_end_a_task_at_their_total(store: TaskStore) -> None:
    [task_id] = await submit_tasks(store)
    limit = store.limits.max_total_crashes
    for attempt in range(1, limit + 1):
        await lease_one(store)
        ended = await store.release(QUEUE, task_id, attempt, ReleaseCause.CRASH)
        assert ended is (ReleaseOutcome.ENDED if attempt == limit else ReleaseOutcome.REQUEUED)
    assert await get_status(store, task_id) is Status.ERROR


async def test_third_crash_ends_an_exclusive_task(store: TaskStore) -> None:
    [task_id] = await submit_tasks(store)
    await crash_twice(store)
    await lease_one(store)
    assert await store.release(QUEUE, task_id, 3, ReleaseCause.CRASH_ALONE) is ReleaseOutcome.ENDED
    record = await get_task(store, task_id)
    assert (record.status, "worker" in (record.details or {})["error"]) == (Status.ERROR, True)
    await assert_not_indexed(store, task_id)


@pytest.mark.parametrize("interrupted", [False, True])
async def test_only_interruptions_are_limited(store: TaskStore, interrupted: bool) -> None:
    [task_id] = await submit_tasks(store)
    limit = store.limits.max_interruptions
    for attempt in range(1, limit + 1):
        lease = await lease_one(store)
        assert lease.exclusive == (interrupted and 2 * (attempt - 1) >= limit)
        cause = ReleaseCause.INTERRUPTION if interrupted else ReleaseCause.REQUEUE
        ended = await store.release(QUEUE, task_id, attempt, cause, "the model broke")
        assert ended is (ReleaseOutcome.ENDED if interrupted and attempt == limit else ReleaseOutcome.REQUEUED)
    record = await get_task(store, task_id)
    assert (record.status, record.crashes) == (Status.ERROR if interrupted else Status.PENDING, 0)
    if interrupted:
        assert record.details == {"error": "the model broke"}
        assert (await store.reads.counts(QUEUE))["interruptions"] == limit


@pytest.mark.parametrize("started", [False, True])
async def test_lost_dispatcher_costs_a_crash_only_after_the_start(store: TaskStore, started: bool) -> None:
    [task_id] = await submit_tasks(store)
    lease = await lease_one(store)
    await store.advance(QUEUE, task_id, lease.attempt, Status.GENERATING)
    assert await store.release(QUEUE, task_id, lease.attempt) is ReleaseOutcome.REQUEUED
    for _ in range(2):
        lease = await lease_one(store)
        await store.advance(QUEUE, task_id, lease.attempt, Status.GENERATING if started else Status.REASONING)
        await make_due(store, f"leased:{QUEUE}")
        assert await store.reap(QUEUE) == 1
    task = await get_task(store, task_id)
    assert (task.status, task.crashes) == (Status.PENDING, 2 if started else 0)


async def test_run_deadline_counts_from_the_first_start(short: TaskStore) -> None:
    [task_id] = await submit_tasks(short)
    in_queue = await deadline(short, task_id)
    assert (await lease_one(short)).remaining_s is None
    assert await deadline(short, task_id) == in_queue, "a lease is no start"
    await short.advance(QUEUE, task_id, 1, Status.GENERATING)
    started = await deadline(short, task_id)
    assert 900 < in_queue - started < 1000
    await short.release(QUEUE, task_id, 1, ReleaseCause.CRASH)
    await short.redis.zincrby(f"{short.prefix}deadlines:{QUEUE}", -20_000, task_id)
    remaining_s = (await lease_one(short)).remaining_s
    assert remaining_s is not None
    assert 0 < remaining_s <= 30
    await short.advance(QUEUE, task_id, 2, Status.GENERATING)
    assert await deadline(short, task_id) == started - 20


async def test_waiting_in_quarantine_costs_no_run_time(short: TaskStore) -> None:
    both = await submit_tasks(short, 2)
    for attempt in (1, 2):
        for lease in await short.lease(QUEUE, 2, 100):
            await short.advance(QUEUE, lease.id, attempt, Status.GENERATING)
            await short.redis.zincrby(f"{short.prefix}deadlines:{QUEUE}", -10_000, lease.id)
            assert await short.release(QUEUE, lease.id, attempt, ReleaseCause.CRASH) is ReleaseOutcome.REQUEUED
    for task_id in both:  # longer than tasks may run, and less than they may wait
        await short.redis.zincrby(f"{short.prefix}deadlines:{QUEUE}", -500_000, task_id)
    assert await short.end_overdue(QUEUE) == 0
    for last in (False, True):
        lease = await lease_one(short)
        assert lease.exclusive
        assert lease.remaining_s is not None
        assert 25 < lease.remaining_s <= 30, "20 s of 50 s were spent running"
        if not last:
            assert await short.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT)
        else:
            await short.redis.zincrby(f"{short.prefix}deadlines:{QUEUE}", -31_000, lease.id)
    assert await short.end_overdue(QUEUE) == 1


async def test_start_may_set_a_longer_deadline(short: TaskStore) -> None:
    deadlines = []
    for run_s in (None, 500):
        [task_id] = await submit_tasks(short)
        await lease_one(short)
        assert await short.advance(QUEUE, task_id, 1, Status.GENERATING, run_s=run_s)
        started = await short.redis.hget(f"{short.prefix}task:{task_id}", "started")  # type: ignore[misc]
        deadlines.append(round(1000 * await deadline(short, task_id)) - int(started or 0))
    assert deadlines == [50_000, 500_000]
