"""The reaper and the sweeper: expired leases, passed deadlines, old tasks and their objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from redis.exceptions import RedisError

from deployments.contract.job import checkpoint_key
from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.background import rest
from serve_app.dispatcher.generation import RESULTS
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task

logger = logging.getLogger(__name__)

_REAP_EVERY_S = 0.5
_SWEEP_EVERY_S = 10.0
_SLOW_S = 0.5
_GAP_S = 2.0
PLACES: Final = ("inputs", "results")
"""Where a task has objects, each below its id."""
_MAX_FAILURES: Final = 3
"""Tasks whose objects can't be deleted one by one either, after which the object store is taken to be away."""


class Maintenance:
    def __init__(self, store: TaskStore, objects: ObjectStore, queues: list[str]) -> None:
        self._store = store
        self._objects = objects
        self._queues = queues

    async def reap(self) -> None:
        """Reaps and expires, but only after Redis was in reach for one lease length without a break.

        While Redis was away nobody could prolong a lease or publish a result; reaping at once would do all the work
        in flight a second time. The same holds after this process itself was stopped for a while.
        """
        steady_since = last_answer = time.monotonic()
        while True:
            await rest(_REAP_EVERY_S)
            sent_at = time.monotonic()
            try:
                await self._store.ping()
            except RedisError:
                steady_since = time.monotonic()
                continue
            now = time.monotonic()
            if now - sent_at > _SLOW_S or now - last_answer > _GAP_S:
                steady_since = now
            last_answer = now
            if now - steady_since > self._store.limits.lease_s:
                await self._round()

    async def _round(self) -> None:
        if count := await self._store.reap(*self._queues):
            logger.warning("took back %d tasks whose lease ran out", count)
        if overdue := await self._store.end_overdue(*self._queues):
            logger.warning("ended %d tasks that were past their deadline", overdue)

    async def sweep(self) -> None:
        """Deletes the objects and records of tasks whose retention is over."""
        while True:
            await self._watch_memory()
            try:
                await self.drop_tasks()
            except UNREACHABLE as problem:
                logger.warning("what is over is not deleted yet: %s", type(problem).__name__)
            await rest(_SWEEP_EVERY_S)

    async def drop_tasks(self) -> None:
        """Deletes the objects and records of the tasks that are due now."""
        ids = await self._store.sweep()
        while ids:
            needed = await self._store.find_needed(ids)
            await self._delete_readable(list(needed))
            gone = await self._without_objects([task_id for task_id in ids if task_id not in needed])
            ids = await self._store.sweep(gone)
            await rest(0)

    async def _delete_readable(self, ids: Sequence[str]) -> None:
        """Deletes the results of deleted drafts, but for the latents that videos are being made of.

        What can't be deleted now keeps nothing else: the sweep names these tasks again.
        """
        for task in await self._store.get_many(ids):
            if task is None:
                continue
            latents = task.result.draft.key if task.result and task.result.draft else None
            if latents is None:  # sealed with a key that is gone: what the videos need is not known
                continue
            try:
                keys = await self._objects.keys(f"{RESULTS}{task.id}")
                await self._objects.delete([key for key in keys if key != latents])
            except UNREACHABLE as problem:
                logger.warning("a deleted draft is not deleted yet: %s", type(problem).__name__)

    async def _without_objects(self, ids: Sequence[str]) -> Sequence[str]:
        """Those whose objects are gone now: one that can't be deleted keeps none of the others. Raises what the object
        store does where it deletes none."""
        try:
            await self._delete_objects(*ids)
            return ids
        except UNREACHABLE as problem:
            failure = problem
        gone: list[str] = []
        for number, task_id in enumerate(ids, 1):
            try:
                await self._delete_objects(task_id)
                gone.append(task_id)
            except UNREACHABLE as problem:
                failure = problem
            if number == _MAX_FAILURES and not gone:
                break
        if not gone:
            raise failure
        return gone

    async def _delete_objects(self, *ids: str) -> None:
        """By their names in the tasks' records: object stores charge for listings."""
        tasks = await self._store.get_many(ids)
        files = {task_id: _stored_files(task) for task_id, task in zip(ids, tasks, strict=True)}
        unknown = [task_id for task_id in ids if files[task_id] is None]
        keys = [key for named in files.values() for key in named or ()]
        await self._objects.delete([*keys, *map(checkpoint_key, unknown)])
        await self._objects.delete_prefixes([f"{place}/{task_id}" for task_id in unknown for place in PLACES])

    async def _watch_memory(self) -> None:
        used_bytes, most = await self._store.memory()
        if most and used_bytes > self._store.limits.max_memory * most:
            logger.warning(
                "the task store uses %d %% of its memory: nothing new is accepted until it is below %d %%",
                100 * used_bytes // most,
                100 * self._store.limits.max_memory,
            )


def _stored_files(task: Task | None) -> list[str] | None:
    """Returns the keys of all objects of an ended task, from its record.

    None where only a listing tells: the record can't be read, or an attempt stored something and had no result.
    """
    payload = task.read_payload() if task is not None else None
    if task is None or payload is None:
        return None
    # The others are those of a draft's own task.
    files = [key for key in payload.inputs.keys if key.startswith(f"inputs/{task.id}/")]
    if payload.request.video is not None:
        files.append(checkpoint_key(task.id))
    if task.attempt == 0 or (task.attempt == 1 and task.status is Status.REQUEST_MODERATED):
        return files
    made = task.result.object_keys if task.result and task.attempt == 1 else None
    return None if made is None else [*files, *made]
