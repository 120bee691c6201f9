"""The steps of the task store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from support.payloads import RESULT, new_result
from support.tasks import QUEUE, assert_not_indexed, get_status, get_task, lease_one, make_due, new_task, with_limits

from serve_app.accounts.credits import CreditStore
from serve_app.storage.pages import page
from serve_app.tasks import store as task_store
from serve_app.tasks.queue_load import WAIT, WORK, timings
from serve_app.tasks.rejections import NeededTaskGone
from serve_app.tasks.scripts import CancelOutcome, DeleteOutcome, ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


async def submit_task(store: TaskStore, **changes: Any) -> str:
    task = new_task(**changes)
    await store.submit(task)
    return task.id


async def test_task_runs_from_submission_to_result(store: TaskStore) -> None:
    await CreditStore(store.redis, store.prefix).grant("default", "first", 1000, by="test")
    task = new_task(price=900, traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    accepted = await store.submit(task)
    assert (accepted.created, accepted.reply) == (True, task.reply)
    assert await get_status(store, task.id) is Status.PENDING

    lease = await lease_one(store)
    assert (lease.id, lease.attempt, lease.exclusive, lease.payload) == (task.id, 1, False, task.payload.encode())
    assert (lease.project, lease.traceparent) == (task.project, task.traceparent)
    assert lease.created <= lease.leased_at
    assert await store.advance(QUEUE, task.id, 1, Status.REASONING)
    assert await get_status(store, task.id) is Status.REASONING
    assert await store.advance(QUEUE, task.id, 1, Status.GENERATING, progress=0.5)
    assert await store.complete(QUEUE, task.id, 1, Status.READY, result=new_result("k"))

    record = await get_task(store, task.id)
    assert (record.status, record.result, record.cost, record.attempt) == (Status.READY, new_result("k"), 900, 1)
    assert record.started is not None
    assert record.finished is not None
    assert record.created <= record.started <= record.finished
    assert await store.redis.ttl(f"{store.prefix}task:{task.id}") > store.limits.retention_s


async def test_stale_attempt_changes_nothing(store: TaskStore) -> None:
    task_id = await submit_task(store)
    await lease_one(store)
    assert await store.release(QUEUE, task_id, 1) is ReleaseOutcome.REQUEUED
    await lease_one(store)
    assert not await store.advance(QUEUE, task_id, 1, Status.GENERATING, progress=0.9)
    assert not await store.complete(QUEUE, task_id, 1, Status.READY, result=new_result("zombie"))
    assert await store.release(QUEUE, task_id, 1, ReleaseCause.CRASH) is ReleaseOutcome.STALE
    assert await store.heartbeat(QUEUE, [(task_id, 1)]) == [(task_id, 1)]
    assert await store.heartbeat(QUEUE, [(task_id, 2)]) == []
    assert await store.complete(QUEUE, task_id, 2, Status.READY, result=new_result("right"))
    record = await get_task(store, task_id)
    assert (record.result, record.crashes) == (new_result("right"), 0)


async def test_heartbeat_keeps_a_lease_and_a_late_result_counts(store: TaskStore) -> None:
    task_id = await submit_task(store)
    await lease_one(store)
    await make_due(store, f"leased:{QUEUE}")
    assert await store.heartbeat(QUEUE, [(task_id, 1)]) == []
    assert await store.reap(QUEUE) == 0
    await make_due(store, f"leased:{QUEUE}")
    assert await store.reap(QUEUE) == 1
    assert await get_status(store, task_id) is Status.PENDING
    assert await store.complete(QUEUE, task_id, 1, Status.READY, result=new_result("k"))
    assert await store.lease(QUEUE, 1, 100) == []
    await assert_not_indexed(store, task_id)


async def test_window_limits_the_leases_of_a_queue(store: TaskStore) -> None:
    for _ in range(5):
        await submit_task(store)
    assert [len(await store.lease(QUEUE, n, 3)) for n in (2, 4, 1)] == [2, 1, 0]


async def test_cancel_stops_leased_work_and_refuses_its_result(store: TaskStore) -> None:
    task_id = await submit_task(store)
    await lease_one(store)
    async with store.redis.pubsub() as pubsub:
        await pubsub.subscribe(store.channel("stop"))
        await pubsub.get_message(timeout=1)
        await store.cancel(task_id, "p")
        message = await pubsub.get_message(timeout=2)
    assert message is not None
    assert message["data"] == task_id
    assert await store.heartbeat(QUEUE, [(task_id, 1)]) == [(task_id, 1)]
    assert not await store.complete(QUEUE, task_id, 1, Status.READY, result=RESULT)
    assert await get_status(store, task_id) is Status.ERROR


async def test_reservation_without_submission_is_swept(store: TaskStore) -> None:
    await store.reservations.reserve("lost", "p")
    task = new_task()
    await store.reservations.reserve(task.id, task.project)
    await store.submit(task)
    await make_due(store, "retention")
    assert await store.sweep() == ["lost"]


async def test_lists_omit_swept_tasks_and_ended_ones_if_active(store: TaskStore) -> None:
    async def list_ids(active: bool = False) -> set[str]:
        listed, _ = await store.reads.list_tasks("p", limit=100, active=active)
        return {task.id for task in listed}

    ended, active = await submit_task(store), await submit_task(store)
    await store.cancel(ended, "p")
    assert (await list_ids(), await list_ids(active=True)) == ({ended, active}, {active})
    await make_due(store, "retention")
    await store.sweep(await store.sweep())
    assert await list_ids() == {active}
    with pytest.raises(ValueError, match="cursor"):
        await store.reads.list_tasks("p", limit=7, cursor="nonsense")


async def test_filtered_page_scans_a_thousand_tasks(store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_store, "SUBMIT_S", 60.0)  # fifty at a time take seconds on a busy machine
    store = with_limits(store, max_active=2000, max_queued=2000)
    rare_id = await submit_task(store, endpoint="gen-rare")
    for _ in range(24):
        await asyncio.gather(*(submit_task(store) for _ in range(50)))
    first, cursor = await store.reads.list_tasks("p", limit=10, endpoints=["gen-rare"])
    assert (first, cursor is None) == ([], False)
    rest, cursor = await store.reads.list_tasks("p", limit=10, endpoints=["gen-rare"], cursor=cursor)
    assert ([task.id for task in rest], cursor) == ([rare_id], None)


async def test_needed_task_is_kept_while_others_may_need_it(store: TaskStore) -> None:
    quick = with_limits(store, retention_s=1, queue_s=1000, run_s=100)
    draft, other = new_task(), new_task()
    for task in (draft, other):
        await quick.submit(task)
        await quick.complete(QUEUE, (await lease_one(quick)).id, 1, Status.READY)
    key = f"{store.prefix}retention"
    before = await store.redis.zscore(key, other.id)
    await quick.submit(new_task(needs=draft.id))
    until = await store.redis.zscore(key, draft.id)
    assert before is not None
    assert until is not None
    assert until - before == pytest.approx(1_099_000, abs=60_000)
    assert await store.redis.zscore(key, other.id) == before
    await with_limits(store, queue_s=1, run_s=1).submit(new_task(needs=draft.id))
    assert await store.redis.zscore(key, draft.id) == until, "a shorter limit moves it no sooner"
    await make_due(store, "retention")
    assert await store.sweep() == [other.id], "a needed task is not swept"
    for task_id in cast(list[str], await store.redis.zrange(f"{store.prefix}active:p", 0, -1)):
        await quick.cancel(task_id, "p")
    await make_due(store, "retention")
    await store.sweep(await store.sweep())
    with pytest.raises(NeededTaskGone):
        await store.submit(new_task(needs=draft.id))
    assert await store.redis.zscore(key, draft.id) is None, "a refused submission does not list it again"


async def test_deleted_task_stays_until_tasks_that_need_it_end(store: TaskStore) -> None:
    draft, first, second = new_task(), new_task(), new_task()
    await store.submit(draft)
    await store.complete(QUEUE, (await lease_one(store)).id, 1, Status.READY)
    for task in (first, second):
        await store.submit(replace(task, needs=draft.id))
    assert {await store.delete(draft.id, "p") for _ in range(2)} == {DeleteOutcome.DELETED}
    assert await store.reads.get(draft.id) is None
    with pytest.raises(NeededTaskGone):
        await store.submit(new_task(needs=draft.id))
    assert await store.cancel(first.id, "p") is CancelOutcome.CANCELLED
    assert await store.sweep() == [draft.id], "its objects that the second task does not need"
    assert await store.reads.find_needed([draft.id, first.id]) == {draft.id}
    lease = await lease_one(store)
    await store.complete(QUEUE, lease.id, 1, Status.ERROR)
    assert await store.reads.find_needed([draft.id]) == set()
    assert await store.sweep() == [draft.id]
    assert await store.sweep([draft.id]) == []
    assert await store.reads.get_many([draft.id]) == [None]
    assert not [key async for key in store.redis.scan_iter(f"{store.prefix}needed:*")]


class GrowingRedis:
    """Adds a newer entry to the index after every read."""

    def __init__(self, redis: Redis, index: str) -> None:
        self._redis, self._index = redis, index
        self._newest = 1000

    async def zrange(self, *args: Any, **options: Any) -> Any:
        result = await self._redis.zrange(*args, **options)
        self._newest += 1
        await self._redis.zadd(self._index, {f"new-{self._newest}": self._newest})
        return result


@pytest.mark.parametrize(("count", "limit"), [(1, 1), (2, 1), (7, 1), (7, 2), (7, 3), (3, 20)])
async def test_pages_of_a_growing_index_hold_each_entry_once(redis: Redis, prefix: str, count: int, limit: int) -> None:
    index = f"{prefix}list"
    entries: dict[Any, float] = {f"task-{number}": 10 + number // 2 for number in range(count)}  # two per millisecond
    await redis.zadd(index, entries)
    growing = cast(Redis, GrowingRedis(redis, index))
    ids, cursor = await page(growing, index, limit, None)
    while cursor is not None:
        more, cursor = await page(growing, index, limit, cursor)
        ids = [*ids, *more]
    assert len(ids) == len(set(ids))
    assert set(entries) <= set(ids)


async def start_task(store: TaskStore, waited_ms: int = 0) -> str:
    """Starts a task that waited so long. Returns its id."""
    task_id = await submit_task(store)
    await store.redis.hincrby(f"{store.prefix}task:{task_id}", "created", -waited_ms)  # type: ignore[misc]
    await lease_one(store)
    for progress in (0.0, 0.5):
        await store.advance(QUEUE, task_id, 1, Status.GENERATING, progress=progress)
    return task_id


async def test_waits_count_at_the_start_and_work_for_results(store: TaskStore) -> None:
    statuses = {0: Status.READY, 700: Status.ERROR, 7_200_000: Status.CONTENT_MODERATED}
    for waited_ms, status in statuses.items():
        await store.complete(QUEUE, await start_task(store, waited_ms), 1, status)
    await store.cancel(await submit_task(store), "p")
    histograms = await timings(store.redis, store.prefix, QUEUE)
    counted = dict(histograms[WAIT].buckets)
    assert (counted[0.5], counted[1.0], counted[3600.0], counted[float("inf")]) == (1, 2, 2, 3)
    assert histograms[WAIT].sum >= 2 * 3600 + 0.7
    assert histograms[WORK].buckets[-1] == (float("inf"), 1)


async def test_dispatcher_counts_as_running_for_five_seconds(store: TaskStore) -> None:
    assert not await store.reads.has_dispatcher()
    await store.heartbeat_dispatcher()
    assert await store.reads.has_dispatcher()
    assert 0 < await store.redis.pttl(f"{store.prefix}dispatcher") <= 5000
