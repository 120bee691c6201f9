"""Maintenance: expired leases, passed deadlines, old tasks and their objects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from support.deliveries import until
from support.payloads import RESULT, new_payload, new_result
from support.tasks import QUEUE, get_task, new_task

from deployments.contract.objects import ObjectStore
from serve_app.dispatcher import maintenance
from serve_app.dispatcher.maintenance import Maintenance
from serve_app.tasks.limits import Limits
from serve_app.tasks.result import DraftResult
from serve_app.tasks.scripts import ReleaseCause
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    loop = asyncio.create_task(work)
    try:
        yield
    finally:
        while not loop.done():  # `wait_for` in the Redis client can lose a cancellation before Python 3.12
            loop.cancel()
            await asyncio.wait([loop], timeout=0.5)


async def end_tasks(store: TaskStore, objects: ObjectStore, *ids: str) -> None:
    """Ends tasks with an input and a result."""
    for task_id in ids:
        await store.submit(new_task(id=task_id))
        await store.lease(QUEUE, 1, 10)
        await objects.put(f"inputs/{task_id}/0.png", b"in", "image/png")
        await objects.put(f"results/{task_id}/1/image.png", b"out", "image/png")
        await store.complete(QUEUE, task_id, 1, Status.READY, result=RESULT)


async def test_expired_leases_are_reaped_and_deadlines_enforced(redis: Redis, prefix: str, tmp_path: Path) -> None:
    store = TaskStore(redis, prefix, Limits(lease_s=1, run_s=0.5))
    for task_id in ("abandoned", "slow"):
        await store.submit(new_task(id=task_id))
        await store.lease(QUEUE, 1, 10)
    await store.advance(QUEUE, "slow", 1, Status.GENERATING)

    async def both_are_noticed() -> bool:
        return {"reaped", "Error"} <= set(await store.reads.counts(QUEUE))

    async with running(Maintenance(store, ObjectStore(tmp_path.as_uri()), [QUEUE]).reap()):
        await until(both_are_noticed)
    abandoned, slow = await get_task(store, "abandoned"), await get_task(store, "slow")
    assert (abandoned.status, abandoned.crashes) == (Status.PENDING, 0)
    assert slow.status is Status.ERROR
    assert slow.details == {"error": "The task was not done before its deadline"}


class VirtualStore:
    """A task store on a virtual clock, with a fault after ten seconds."""

    limits = Limits(lease_s=2)

    def __init__(self, fault: str) -> None:
        self.now = 0.0
        self.reaped_at: list[float] = []
        self.reads = self
        self._fault = fault

    async def rest(self, seconds: float) -> None:
        if self.now > 30:
            raise TimeoutError
        self.now += seconds
        if self._fault == "process stopped" and self.now == 10:
            self.now += 5

    async def ping(self) -> None:
        if self._fault == "redis away" and self.now == 10:
            raise RedisConnectionError("away")
        if self._fault == "redis hung" and self.now == 10:
            self.now += 5

    async def reap(self, *queues: str) -> int:
        self.reaped_at.append(self.now)
        return 0

    async def end_overdue(self, *queues: str) -> int:
        return 0


@pytest.mark.parametrize(("fault", "back_at"), [("redis hung", 15), ("redis away", 10), ("process stopped", 15)])
async def test_reaper_waits_for_a_steady_lease_length(
    monkeypatch: pytest.MonkeyPatch, fault: str, back_at: float
) -> None:
    store = VirtualStore(fault)
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: store.now))
    monkeypatch.setattr(maintenance, "rest", store.rest)
    with pytest.raises(TimeoutError):
        await Maintenance(cast(TaskStore, store), ObjectStore("memory:///"), [QUEUE]).reap()
    assert 2 < store.reaped_at[0] < 3
    assert back_at + 2 < next(at for at in store.reaped_at if at >= 10) < back_at + 3


class Locked(ObjectStore):
    """Refuses to delete keys with `locked` in their name."""

    async def delete(self, keys: Sequence[str]) -> None:
        if any("locked" in key for key in keys):
            raise PermissionError("locked")
        await super().delete(keys)

    async def delete_prefixes(self, prefixes: Sequence[str]) -> None:
        if any("locked" in prefix for prefix in prefixes):
            raise PermissionError("locked")
        await super().delete_prefixes(prefixes)


async def test_sweep_goes_on_past_objects_it_can_not_delete(redis: Redis, prefix: str, tmp_path: Path) -> None:
    store, objects = TaskStore(redis, prefix), Locked(tmp_path.as_uri())
    await end_tasks(store, objects, "locked", "old", "older", "new")
    await objects.put("checkpoints/locked.safetensors", b"latents", "application/octet-stream")
    await redis.zadd(f"{prefix}retention", {"locked": 1, "old": 2, "older": 3})

    async def others_are_swept() -> bool:
        return await store.reads.get_many(["old", "older"]) == [None] * 2

    async with running(Maintenance(store, objects, [QUEUE]).sweep()):
        await until(others_are_swept)
    assert None not in await store.reads.get_many(["locked", "new"])
    assert sorted(await objects.keys("inputs")) == ["inputs/locked/0.png", "inputs/new/0.png"]
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["locked", "new"]


async def test_deleted_draft_keeps_latents_that_a_video_needs(redis: Redis, prefix: str) -> None:
    store, objects = TaskStore(redis, prefix), ObjectStore("memory:///")
    names = ["video.mp4", "thumbnail.jpeg", "draft.safetensors"]
    folder = "results/draft/1"
    draft = DraftResult(f"{folder}/{names[2]}", 120, 640, 352, audio=True)
    result = new_result(f"{folder}/{names[0]}", files=tuple(names), draft=draft)
    await store.submit(new_task(id="draft", payload=new_payload(references=("inputs/draft/0.png",))))
    await store.lease(QUEUE, 1, 10)
    for key in ("inputs/draft/0.png", *(f"{folder}/{name}" for name in names)):
        await objects.put(key, b"x", "image/png")
    await store.complete(QUEUE, "draft", 1, Status.READY, result=result)
    await store.submit(new_task(id="video", needs="draft"))
    await store.delete("draft", "p")
    upkeep = Maintenance(store, objects, [QUEUE])
    await upkeep.drop_tasks()
    assert sorted(await objects.keys("")) == ["inputs/draft/0.png", f"{folder}/draft.safetensors"]
    await store.lease(QUEUE, 1, 10)
    await store.complete(QUEUE, "video", 1, Status.READY, result=RESULT)
    await upkeep.drop_tasks()
    assert (await objects.keys(""), await store.reads.get_many(["draft"])) == ([], [None])


class ListingRecorder(ObjectStore):
    """Records which folders are listed."""

    listed: tuple[str, ...] = ()

    async def keys(self, prefix: str) -> list[str]:
        self.listed = (*self.listed, prefix)
        return await super().keys(prefix)


async def test_sweep_lists_folders_only_of_attempts_without_result(redis: Redis, prefix: str) -> None:
    store, objects = TaskStore(redis, prefix), ListingRecorder("memory:///")
    job = new_payload(references=("inputs/done/0.png", "inputs/other/0.png"), mask="inputs/done/1.png")
    result = new_result("results/done/1/image.png", files=("image.png", "thumbnail.jpeg", "preview-2.jpeg"))
    for task_id in ("done", "refused", "lost"):
        await store.submit(new_task(id=task_id, payload=job))
        [lease] = await store.lease(QUEUE, 1, 10)
        if task_id == "lost":
            await store.release(QUEUE, task_id, 1, ReleaseCause.CRASH)
            [lease] = await store.lease(QUEUE, 1, 10)
        status = Status.REQUEST_MODERATED if task_id == "refused" else Status.READY
        assert await store.complete(QUEUE, task_id, lease.attempt, status, result=result)
    names = result.object_keys or []
    for key in (*names, *job.inputs.keys, "results/lost/1/image.png", "checkpoints/lost.safetensors"):
        await objects.put(key, b"x", "image/png")
    await redis.zadd(f"{prefix}retention", dict.fromkeys(("done", "refused", "lost"), 1))
    await Maintenance(store, objects, [QUEUE]).drop_tasks()
    assert await store.reads.get_many(["done", "refused", "lost"]) == [None] * 3
    assert objects.listed == ("inputs/lost", "results/lost")
    assert await objects.keys("") == ["inputs/other/0.png"]
