"""Deadlines of tasks, in the queue and at work."""

from __future__ import annotations

from support.tasks import LANE, assert_gone_from_indexes, lease_one, limited, make_due, new_task, status_of

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


async def test_a_task_expires_in_the_queue_and_at_work(store: TaskStore) -> None:
    waiting, working = new_task(), new_task()
    await store.submit(working)
    await lease_one(store)
    await store.advance(LANE, working.id, 1, Status.GENERATING)
    await store.submit(waiting)
    assert await store.end_overdue(LANE) == 0
    await make_due(store, f"deadlines:{LANE}")
    assert await store.end_overdue(LANE) == 2
    for task in (waiting, working):
        assert await status_of(store, task.id) is Status.ERROR
        await assert_gone_from_indexes(store, task.id)


async def test_the_run_deadline_counts_from_the_first_start_of_work(store: TaskStore) -> None:
    store = limited(store, queue_s=1000, run_s=50)
    task = new_task()
    await store.submit(task)

    async def deadline() -> float:
        score = await store.redis.zscore(f"{store.prefix}deadlines:{LANE}", task.id)
        assert score is not None
        return score / 1000

    in_queue = await deadline()
    await lease_one(store)
    assert await deadline() == in_queue, "a lease is not yet a start"
    await store.advance(LANE, task.id, 1, Status.GENERATING)
    started = await deadline()
    assert 900 < in_queue - started < 1000
    await store.release(LANE, task.id, 1, strike=True)
    await lease_one(store)
    await store.advance(LANE, task.id, 2, Status.GENERATING)
    assert await deadline() == started


async def test_a_lease_tells_how_long_work_that_began_may_still_take(store: TaskStore) -> None:
    store = limited(store, queue_s=1000, run_s=50)
    task = new_task()
    await store.submit(task)
    assert (await lease_one(store)).left_s is None, "the start of its work sets its deadline"
    await store.release(LANE, task.id, 1, strike=False)
    assert (await lease_one(store)).left_s is None
    await store.advance(LANE, task.id, 2, Status.GENERATING)
    await store.release(LANE, task.id, 2, strike=True)
    await store.redis.zincrby(f"{store.prefix}deadlines:{LANE}", -20_000, task.id)
    left_s = (await lease_one(store)).left_s
    assert left_s is not None
    assert 0 < left_s <= 30


async def test_the_clock_of_a_suspect_stands_still_while_it_waits_for_its_turn(store: TaskStore) -> None:
    """Each is alone with a worker, so the last of many waits long for what one of the others did."""
    store = limited(store, queue_s=1000, run_s=50)
    first, second = new_task(), new_task()
    for task in (first, second):
        await store.submit(task)
    for attempt in (1, 2):
        for lease in await store.lease(LANE, 2, 100):
            await store.advance(LANE, lease.id, attempt, Status.GENERATING)
            await store.redis.zincrby(f"{store.prefix}deadlines:{LANE}", -10_000, lease.id)
            assert await store.release(LANE, lease.id, attempt, strike=True) == 1

    async def wait_in_vain() -> None:
        """Longer than tasks may run, and less than they may wait."""
        for task in (first, second):
            await store.redis.zincrby(f"{store.prefix}deadlines:{LANE}", -500_000, task.id)
        assert await store.end_overdue(LANE) == 0

    await wait_in_vain()
    lease = await lease_one(store)
    assert lease.isolated
    assert lease.left_s is not None
    assert 25 < lease.left_s <= 30, "of 50 s, 20 were spent at work"
    assert await store.complete(LANE, lease.id, lease.attempt, Status.READY, result={})
    lease = await lease_one(store)
    assert lease.left_s is not None
    assert 25 < lease.left_s <= 30
    await store.redis.zincrby(f"{store.prefix}deadlines:{LANE}", -31_000, lease.id)
    assert await store.end_overdue(LANE) == 1, "at work it goes on"


async def test_a_suspect_waits_no_longer_than_any_task(store: TaskStore) -> None:
    store = limited(store, queue_s=1000, run_s=50)
    task = new_task()
    await store.submit(task)
    for attempt in (1, 2):
        await lease_one(store)
        await store.advance(LANE, task.id, attempt, Status.GENERATING)
        await store.release(LANE, task.id, attempt, strike=True)
    await make_due(store, f"deadlines:{LANE}")
    assert await store.end_overdue(LANE) == 1
    assert await status_of(store, task.id) is Status.ERROR
    await assert_gone_from_indexes(store, task.id)


async def test_work_may_be_given_longer_than_other_work(store: TaskStore) -> None:
    store = limited(store, run_s=50)
    deadlines = []
    for run_s in (None, 500):
        task = new_task()
        await store.submit(task)
        await lease_one(store)
        assert await store.advance(LANE, task.id, 1, Status.GENERATING, run_s=run_s)
        deadline = await store.redis.zscore(f"{store.prefix}deadlines:{LANE}", task.id)
        started = await store.redis.hget(f"{store.prefix}task:{task.id}", "started")  # type: ignore[misc]
        assert deadline is not None
        assert started is not None
        deadlines.append(float(deadline) - int(started))
    assert deadlines == [50_000, 500_000]
