"""Reaper and sweeper: expired leases, passed deadlines, old tasks and their objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from redis.exceptions import RedisError

from deployments.contract.job import RESULTS, checkpoint_key
from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.background import rest
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task

logger = logging.getLogger(__name__)

_REAP_INTERVAL_S: Final = 0.5
_SWEEP_INTERVAL_S: Final = 10.0
_MAX_PING_S: Final = 0.5
_MAX_PAUSE_S: Final = 2.0
"""Longest pause between two pings of a process that was not stopped meanwhile."""
FOLDERS: Final = ("inputs", "results")
"""Folders of the object store that have one for each task id."""
_MAX_FAILURES: Final = 3
"""Number of tasks whose objects can't be deleted one by one, after which the object store counts as away."""


class Maintenance:
    def __init__(self, store: TaskStore, objects: ObjectStore, queues: list[str]) -> None:
        self._store = store
        self._objects = objects
        self._queues = queues

    async def reap(self) -> None:
        """Requeues tasks whose lease expired and ends those past their deadline.

        Does so only after Redis was in reach for one lease length without a break. While it was away no dispatcher
        could prolong a lease or publish a result: reaping at once would repeat all work in flight. The same holds after
        this process itself was stopped for a while.
        """
        steady_since = last_answer = time.monotonic()
        while True:
            await rest(_REAP_INTERVAL_S)
            sent_at = time.monotonic()
            try:
                await self._store.reads.ping()
            except RedisError:
                steady_since = time.monotonic()
                continue
            now = time.monotonic()
            if now - sent_at > _MAX_PING_S or now - last_answer > _MAX_PAUSE_S:
                steady_since = now
            last_answer = now
            if now - steady_since > self._store.limits.lease_s:
                if count := await self._store.reap(*self._queues):
                    logger.warning("requeued %d tasks whose lease expired", count)
                if count := await self._store.end_overdue(*self._queues):
                    logger.warning("ended %d tasks that were past their deadline", count)

    async def sweep(self) -> None:
        """Deletes the objects and records of tasks whose retention is over."""
        while True:
            await self._watch_memory()
            try:
                await self.drop_tasks()
            except UNREACHABLE as problem:
                logger.warning("old tasks are not deleted yet: %s", type(problem).__name__)
            await rest(_SWEEP_INTERVAL_S)

    async def drop_tasks(self) -> None:
        """Deletes the objects and records of the tasks that are due now."""
        ids = await self._store.sweep()
        while ids:
            needed = await self._store.reads.find_needed(ids)
            await self._delete_readable(list(needed))
            deleted = await self._delete_objects([task_id for task_id in ids if task_id not in needed])
            ids = await self._store.sweep(deleted)
            await rest(0)

    async def _delete_readable(self, ids: Sequence[str]) -> None:
        """Deletes the results of deleted drafts, except the latents that unfinished videos need.

        A failure stops nothing else: the sweep names these tasks again.
        """
        for task in await self._store.reads.get_many(ids):
            if task is None:
                continue
            latents = task.result.draft.key if task.result and task.result.draft else None
            if latents is None:  # sealed with a lost key: the videos may need any of the objects
                continue
            try:
                keys = await self._objects.keys(f"{RESULTS}{task.id}")
                await self._objects.delete([key for key in keys if key != latents])
            except UNREACHABLE as problem:
                logger.warning("a deleted draft is not deleted yet: %s", type(problem).__name__)

    async def _delete_objects(self, ids: Sequence[str]) -> Sequence[str]:
        """Deletes the objects of these tasks. Returns the ids of those that have none left.

        Tries one by one if they can't be deleted together. Raises the object store's error if none can.
        """
        try:
            await self._delete_together(ids)
            return ids
        except UNREACHABLE as problem:
            failure = problem
        deleted: list[str] = []
        for number, task_id in enumerate(ids, 1):
            try:
                await self._delete_together([task_id])
                deleted.append(task_id)
            except UNREACHABLE as problem:
                failure = problem
            if number == _MAX_FAILURES and not deleted:
                break
        if not deleted:
            raise failure
        return deleted

    async def _delete_together(self, ids: Sequence[str]) -> None:
        """Deletes objects by their names in the tasks' records: object stores charge for listings."""
        tasks = await self._store.reads.get_many(ids)
        files = {task_id: _stored_files(task) for task_id, task in zip(ids, tasks, strict=True)}
        unknown = [task_id for task_id in ids if files[task_id] is None]
        keys = [key for named in files.values() for key in named or ()]
        await self._objects.delete([*keys, *map(checkpoint_key, unknown)])
        await self._objects.delete_prefixes([f"{folder}/{task_id}" for task_id in unknown for folder in FOLDERS])

    async def _watch_memory(self) -> None:
        memory = await self._store.reads.memory()
        if memory.is_fuller_than(self._store.limits.max_memory):
            logger.warning(
                "the task store uses %d %% of its memory: nothing new is accepted until it is below %d %%",
                100 * memory.used // memory.limit,
                100 * self._store.limits.max_memory,
            )


def _stored_files(task: Task | None) -> list[str] | None:
    """Returns the keys of all objects of an ended task, from its record.

    None: only a listing shows them, since the record can't be read, or an attempt stored files without a result.
    """
    payload = task.read_payload() if task is not None else None
    if task is None or payload is None:
        return None
    # Other inputs belong to a draft's own task.
    files = [key for key in payload.inputs.keys if key.startswith(f"inputs/{task.id}/")]
    if payload.request.has_checkpoint:
        files.append(checkpoint_key(task.id))
    if task.attempt == 0 or (task.attempt == 1 and task.status is Status.REQUEST_MODERATED):
        return files
    results = task.result.object_keys if task.result and task.attempt == 1 else None
    return None if results is None else [*files, *results]
