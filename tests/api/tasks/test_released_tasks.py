"""What becomes of tasks that a worker gives back: strikes, suspects, interruptions."""

from __future__ import annotations

from support.tasks import LANE, assert_gone_from_indexes, lease_one, new_task, status_of, stored

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


async def test_two_strikes_make_a_suspect_that_runs_alone(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    for attempt in (1, 2):
        assert not (await lease_one(store)).isolated
        assert await store.release(LANE, task.id, attempt, strike=True) == 1
    other = new_task()
    await store.submit(other)

    leases = await store.lease(LANE, 5, 100)
    assert {lease.id: lease.isolated for lease in leases} == {task.id: True, other.id: False}


async def test_suspects_are_in_flight_one_at_a_time(store: TaskStore) -> None:
    suspects = [new_task() for _ in range(3)]
    for task in suspects:
        await store.submit(task)
    for attempt in (1, 2):
        for lease in await store.lease(LANE, 3, 100):
            await store.release(LANE, lease.id, attempt, strike=True)
    (first,) = await store.lease(LANE, 3, 100)
    assert await store.lease(LANE, 3, 100) == []
    await store.complete(LANE, first.id, first.attempt, Status.READY, result={})
    assert len(await store.lease(LANE, 3, 100)) == 1


async def test_a_shared_crash_never_ends_a_task(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    for attempt in range(1, store.limits.max_losses):
        await lease_one(store)
        assert await store.release(LANE, task.id, attempt, strike=True, alone=False) == 1
    # A bound all the same: nothing is tried for ever.
    await lease_one(store)
    assert await store.release(LANE, task.id, store.limits.max_losses, strike=True, alone=False) == 2
    assert await status_of(store, task.id) is Status.ERROR


async def test_the_third_strike_alone_ends_a_task(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    for attempt in (1, 2):
        await lease_one(store)
        await store.release(LANE, task.id, attempt, strike=True)
    await lease_one(store)
    assert await store.release(LANE, task.id, 3, strike=True, alone=True) == 2
    record = await stored(store, task.id)
    assert record.status is Status.ERROR
    assert record.details is not None
    assert "worker" in record.details["error"]
    await assert_gone_from_indexes(store, task.id)


async def test_release_without_strike_costs_nothing(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    for attempt in range(1, store.limits.max_interruptions + 2):
        assert (await lease_one(store)).attempt == attempt
        assert await store.release(LANE, task.id, attempt, strike=False) == 1
    record = await stored(store, task.id)
    assert record.strikes == 0


async def test_a_task_that_is_interrupted_again_and_again_ends(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    most = store.limits.max_interruptions
    for attempt in range(1, most + 1):
        lease = await lease_one(store)
        assert lease.isolated == (2 * (attempt - 1) >= most), "what others may interrupt gets a worker to itself"
        ended = await store.release(LANE, task.id, attempt, strike=False, interrupted=True, reason="the model broke")
        assert ended == (2 if attempt == most else 1)
    record = await stored(store, task.id)
    assert (record.status, record.strikes) == (Status.ERROR, 0)
    assert record.details == {"error": "the model broke"}
    assert (await store.counts(LANE))["interruptions"] == most
    await assert_gone_from_indexes(store, task.id)
