"""The task store's steps, one by one, on a real server."""

from __future__ import annotations

import asyncio

import pytest
from support.tasks import LANE, assert_gone_from_indexes, lease_one, limited, make_due, new_task, status_of, stored

from serve_app.accounts.credits import Credits
from serve_app.tasks.limits import IdempotencyMismatch, QueueFull, TooManyActive
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


async def test_a_trace_goes_with_the_task(store: TaskStore) -> None:
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    task = new_task(traceparent=traceparent)
    await store.submit(task)
    lease = await lease_one(store)
    assert (lease.project, lease.traceparent) == (task.project, traceparent)
    assert lease.created <= lease.began
    record = await stored(store, task.id)
    assert record.traceparent == traceparent


async def test_a_task_goes_from_submission_to_its_result(store: TaskStore) -> None:
    await Credits(store.redis, store.prefix).grant("default", "first", 1000, by="test")
    task = new_task(job='{"steps": 4}', price=900)
    accepted = await store.submit(task)
    assert (accepted.created, accepted.reply) == (True, task.reply)
    assert await status_of(store, task.id) is Status.PENDING

    lease = await lease_one(store)
    assert (lease.id, lease.attempt, lease.isolated, lease.job) == (task.id, 1, False, task.job)
    assert await store.advance(LANE, task.id, 1, Status.REASONING)
    assert await status_of(store, task.id) is Status.REASONING
    assert await store.advance(LANE, task.id, 1, Status.GENERATING, progress=0.5)
    assert await store.complete(LANE, task.id, 1, Status.READY, result={"key": "k"})

    record = await stored(store, task.id)
    assert (record.status, record.result, record.cost, record.attempt) == (Status.READY, {"key": "k"}, 900, 1)
    assert record.started is not None
    assert record.finished is not None
    assert record.created <= record.started <= record.finished
    await assert_gone_from_indexes(store, task.id)
    assert await store.redis.ttl(f"{store.prefix}task:{task.id}") > store.limits.retention_s


async def test_a_stale_attempt_changes_nothing(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    await lease_one(store)
    assert await store.release(LANE, task.id, 1, strike=False) == 1
    await lease_one(store)

    assert not await store.advance(LANE, task.id, 1, Status.GENERATING, progress=0.9)
    assert not await store.complete(LANE, task.id, 1, Status.READY, result={"key": "zombie"})
    assert await store.release(LANE, task.id, 1, strike=True) == 0
    assert await store.heartbeat(LANE, [(task.id, 1)]) == [(task.id, 1)]
    assert await store.heartbeat(LANE, [(task.id, 2)]) == []
    assert await store.complete(LANE, task.id, 2, Status.READY, result={"key": "right"})
    record = await stored(store, task.id)
    assert record.result == {"key": "right"}
    assert record.strikes == 0


async def test_progress_never_falls_and_phases_never_go_back(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    await lease_one(store)
    await store.advance(LANE, task.id, 1, Status.GENERATING, progress=0.6)
    await store.advance(LANE, task.id, 1, Status.REASONING, progress=0.2)
    record = await stored(store, task.id)
    assert (record.status, record.progress) == (Status.GENERATING, 0.6)

    await store.release(LANE, task.id, 1, strike=True)
    await lease_one(store)
    await store.advance(LANE, task.id, 2, Status.GENERATING, progress=0.1)
    record = await stored(store, task.id)
    assert record.progress == 0.6


async def test_a_result_that_comes_after_the_reaper_still_counts(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    await lease_one(store)
    await make_due(store, f"leased:{LANE}")
    assert await store.reap(LANE) == 1
    assert await status_of(store, task.id) is Status.PENDING
    assert await store.complete(LANE, task.id, 1, Status.READY, result={"key": "k"})
    assert await store.lease(LANE, 1, 100) == []
    await assert_gone_from_indexes(store, task.id)


async def test_a_heartbeat_keeps_a_lease_from_the_reaper(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    await lease_one(store)
    await make_due(store, f"leased:{LANE}")
    assert await store.heartbeat(LANE, [(task.id, 1)]) == []
    assert await store.reap(LANE) == 0


async def test_the_window_bounds_all_leases_of_a_lane(store: TaskStore) -> None:
    for _ in range(5):
        await store.submit(new_task())
    assert len(await store.lease(LANE, 2, 3)) == 2
    assert len(await store.lease(LANE, 4, 3)) == 1
    assert await store.lease(LANE, 1, 3) == []


async def test_cancel_stops_leased_work_and_fences_its_result(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    await lease_one(store)
    async with store.redis.pubsub() as pubsub:
        await pubsub.subscribe(store.channel("stop"))
        await pubsub.get_message(timeout=1)
        await store.cancel(task.id, "p")
        message = await pubsub.get_message(timeout=2)
    assert message is not None
    assert message["data"] == task.id
    assert await store.heartbeat(LANE, [(task.id, 1)]) == [(task.id, 1)]
    assert not await store.complete(LANE, task.id, 1, Status.READY, result={})
    assert await status_of(store, task.id) is Status.ERROR


async def test_a_full_queue_refuses_and_writes_nothing(store: TaskStore) -> None:
    store = limited(store, max_queued=2)
    for _ in range(2):
        await store.submit(new_task())
    refused = new_task(idempotency_key="k")
    with pytest.raises(QueueFull):
        await store.submit(refused)
    assert await store.get(refused.id) is None
    assert not [key async for key in store.redis.scan_iter(f"{store.prefix}idempotency*", count=10_000)]


async def test_a_project_may_have_so_many_active_tasks(store: TaskStore) -> None:
    store = limited(store, max_active=2)
    first = new_task()
    await store.submit(first)
    await store.submit(new_task())
    with pytest.raises(TooManyActive) as refusal:
        await store.submit(new_task())
    assert refusal.value.limit == 2
    await store.submit(new_task(project="other"))
    await store.cancel(first.id, "p")
    await store.submit(new_task())


async def test_an_idempotency_key_makes_one_task(store: TaskStore) -> None:
    tasks = [new_task(idempotency_key="k", body_hash="b") for _ in range(20)]
    outcomes = await asyncio.gather(*(store.submit(task) for task in tasks))
    assert sum(accepted.created for accepted in outcomes) == 1
    assert len({accepted.reply for accepted in outcomes}) == 1
    assert (await store.counts(LANE))["queued"] == 1
    with pytest.raises(IdempotencyMismatch):
        await store.submit(new_task(idempotency_key="k", body_hash="another"))
    accepted = await store.submit(new_task(project="q", idempotency_key="k", body_hash="another"))
    assert accepted.created, "keys of different projects don't meet"


async def test_retention_removes_record_index_and_names_the_objects(store: TaskStore) -> None:
    task = new_task()
    await store.submit(task)
    await lease_one(store)
    await store.complete(LANE, task.id, 1, Status.READY, result={})
    assert await store.sweep() == []
    await make_due(store, "retention")
    assert await store.sweep() == [task.id]
    assert await store.sweep() == [], "claimed: nobody else deletes the same objects"
    assert await store.sweep([task.id]) == []
    assert await store.get(task.id) is None
    assert await store.list_tasks("p", limit=10) == ([], None)
    assert not [key async for key in store.redis.scan_iter(f"{store.prefix}task:*", count=10_000)]


async def test_a_reservation_that_was_never_submitted_is_swept(store: TaskStore) -> None:
    await store.reserve("lost", "p")
    kept = new_task()
    await store.reserve(kept.id, kept.project)
    await store.submit(kept)
    await make_due(store, "retention")
    assert await store.sweep() == ["lost"]


async def test_lists_page_through_everything_once(store: TaskStore) -> None:
    store = limited(store, max_active=100)
    tasks = [new_task() for _ in range(25)]
    for task in tasks:
        await store.submit(task)
    await store.cancel(tasks[3].id, "p")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await store.list_tasks("p", limit=7, cursor=cursor)
        seen += [task.id for task in page]
        if cursor is None:
            break
    assert sorted(seen) == sorted(task.id for task in tasks)
    active, _ = await store.list_tasks("p", limit=100, active=True)
    assert tasks[3].id not in {task.id for task in active}
    assert len(active) == 24
    with pytest.raises(ValueError, match="cursor"):
        await store.list_tasks("p", limit=7, cursor="nonsense")


async def test_a_filtered_page_looks_at_a_thousand_tasks_and_the_next_goes_on(store: TaskStore) -> None:
    store = limited(store, max_active=2000, max_queued=2000)
    wanted = new_task(endpoint="gen-rare")
    await store.submit(wanted)
    for _ in range(1200):
        await store.submit(new_task())
    first, cursor = await store.list_tasks("p", limit=10, endpoints=["gen-rare"])
    assert (first, cursor is None) == ([], False)
    rest, cursor = await store.list_tasks("p", limit=10, endpoints=["gen-rare"], cursor=cursor)
    assert ([task.id for task in rest], cursor) == ([wanted.id], None)


async def test_what_a_task_is_made_of_stays_while_it_may_take(store: TaskStore) -> None:
    quick = limited(store, retention_s=1, queue_s=1000, run_s=100)
    draft, other = new_task(), new_task()
    for task in (draft, other):
        await quick.submit(task)
        await quick.complete(LANE, (await lease_one(quick)).id, 1, Status.READY)
    key = f"{store.prefix}retention"
    before = await store.redis.zscore(key, other.id)
    await quick.submit(new_task(needs=draft.id))
    until = await store.redis.zscore(key, draft.id)
    assert before is not None
    assert until is not None
    assert until - before == pytest.approx(1_099_000, abs=60_000)
    assert await store.redis.zscore(key, other.id) == before
    await limited(store, queue_s=1, run_s=1).submit(new_task(needs=draft.id))
    assert await store.redis.zscore(key, draft.id) == until, "never sooner"
    await make_due(store, "retention")
    await store.sweep(await store.sweep())
    await store.submit(new_task(needs=draft.id))
    assert await store.redis.zscore(key, draft.id) is None, "what is gone is not listed again"
