"""Maintenance: expired leases, passed deadlines, old tasks and their objects."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.payloads import RESULT, new_payload, new_result
from support.tasks import QUEUE, new_task

from deployments.contract.objects import ObjectStore
from serve_app.dispatcher.maintenance import Maintenance
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.tasks.limits import Limits
from serve_app.tasks.result import DraftResult
from serve_app.tasks.scripts import ReleaseCause
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


@contextlib.asynccontextmanager
async def running(*loops: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        pending = set(loops)
        while pending:
            # Again and again: before Python 3.12 asyncio.wait_for, which the Redis client uses, may swallow one.
            for loop in pending:
                loop.cancel()
            _, pending = await asyncio.wait(pending, timeout=0.5)


async def until_event(store: TaskStore, event: str) -> None:
    async with asyncio.timeout(60):
        while not (await store.reads.counts(QUEUE)).get(event):
            await asyncio.sleep(0.02)


async def end_tasks(store: TaskStore, objects: ObjectStore, *ids: str) -> None:
    """Tasks with an input and a result."""
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
    upkeep = Maintenance(store, ObjectStore(tmp_path.as_uri()), [QUEUE])
    async with running(asyncio.create_task(upkeep.reap())):
        await until_event(store, "reaped")
        await until_event(store, "Error")
    abandoned, slow = await store.reads.get("abandoned"), await store.reads.get("slow")
    assert abandoned is not None
    assert slow is not None
    assert (abandoned.status, abandoned.crashes) == (Status.PENDING, 0)
    assert slow.status is Status.ERROR
    assert slow.details == {"error": "The task was not done before its deadline"}


@pytest.mark.slow
async def test_reaper_waits_after_redis_hung_longer_than_a_lease(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    redis = connection.connect(server.url)
    try:
        store = TaskStore(redis, limits=Limits(lease_s=2))
        await store.submit(new_task(id="t"))
        (lease,) = await store.lease(QUEUE, 1, 10)

        async def heartbeat() -> None:
            while True:
                await store.heartbeat(QUEUE, [(lease.id, lease.attempt)])
                await asyncio.sleep(0.5)

        upkeep = Maintenance(store, ObjectStore((tmp_path / "objects").as_uri()), [QUEUE])
        beat = asyncio.create_task(heartbeat())
        async with running(asyncio.create_task(upkeep.reap()), beat):
            assert server.pid is not None
            os.kill(server.pid, signal.SIGSTOP)
            await asyncio.sleep(2.5)  # the hang itself: longer than the lease
            os.kill(server.pid, signal.SIGCONT)
            await asyncio.sleep(1)  # the reaper looks several times
        assert await store.complete(QUEUE, "t", 1, Status.READY, result=RESULT)
        assert "reaped" not in await store.reads.counts(QUEUE)
    finally:
        await redis.aclose()
        server.stop()


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
    async with running(asyncio.create_task(Maintenance(store, objects, [QUEUE]).sweep())), asyncio.timeout(60):
        while await store.reads.get("old") or await store.reads.get("older"):
            await asyncio.sleep(0.02)
    assert await store.reads.get("locked") is not None
    assert await store.reads.get("new") is not None
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
    async with running(asyncio.create_task(Maintenance(store, objects, [QUEUE]).sweep())), asyncio.timeout(60):
        while len(await objects.keys("")) > 2:
            await asyncio.sleep(0.02)
    assert sorted(await objects.keys("")) == ["inputs/draft/0.png", f"{folder}/draft.safetensors"]
    await store.lease(QUEUE, 1, 10)
    await store.complete(QUEUE, "video", 1, Status.READY, result=RESULT)
    async with running(asyncio.create_task(Maintenance(store, objects, [QUEUE]).sweep())), asyncio.timeout(60):
        while await objects.keys("") or await store.reads.get_many(["draft"]) != [None]:
            await asyncio.sleep(0.02)


class Unlisted(ObjectStore):
    """Records which folders are listed."""

    listed: tuple[str, ...] = ()

    async def keys(self, prefix: str) -> list[str]:
        self.listed = (*self.listed, prefix)
        return await super().keys(prefix)


async def test_sweep_lists_folders_only_of_attempts_without_result(redis: Redis, prefix: str) -> None:
    store, objects = TaskStore(redis, prefix), Unlisted("memory:///")
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
    async with running(asyncio.create_task(Maintenance(store, objects, [QUEUE]).sweep())), asyncio.timeout(60):
        while await store.reads.get("done") or await store.reads.get("refused") or await store.reads.get("lost"):
            await asyncio.sleep(0.02)
    assert objects.listed == ("inputs/lost", "results/lost")
    assert await objects.keys("") == ["inputs/other/0.png"], "of another task"
