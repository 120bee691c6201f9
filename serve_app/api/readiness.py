"""Readiness of the service: task store, object store, dispatcher and task notifications."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, RedisError

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.api.single_flight import SingleFlightCache
from serve_app.storage.refusals import NO_PERMISSION, StoreRefused, describe_store_problem, probe
from serve_app.tasks.notifications import TaskNotifications
from serve_app.tasks.store import TaskStore

logger = logging.getLogger(__name__)

NO_STORE: Final = "the task store is out of reach"
STORE_REFUSES: Final = "the task store refuses requests"
STORE_FULL: Final = "the task store is full"
NO_OBJECTS: Final = "the object store takes no objects"
NO_DISPATCHER: Final = "no dispatcher is running"
NO_NOTIFICATIONS: Final = "notifications of tasks are down: polls that wait answer late"

CHECK_LIMIT_S: Final = 2.0
"""Maximum duration of one check, in seconds."""
_TTL_S: Final = 1.0
_OBJECTS_TTL_S: Final = 10.0
"""Longer than `_TTL_S`, since the check writes an object."""
_PROBE: Final = "health"


class Readiness:
    """Checks the requirements of new tasks, at most once a second."""

    def __init__(self, tasks: TaskStore, objects: ObjectStore, prober: Redis, notifications: TaskNotifications) -> None:
        """`prober` is a client without retries, which would hide the store's reason to refuse."""
        self._tasks = tasks
        self._prober = prober
        self._objects = objects
        self._notifications = notifications
        self._objects_writable = SingleFlightCache(self._check_objects, _OBJECTS_TTL_S)
        self._missing = SingleFlightCache(self._check, _TTL_S)

    async def missing(self) -> list[str]:
        """Returns a sentence for each thing that is missing."""
        return await self._missing.get()

    def clear(self) -> None:
        self._missing.clear()
        self._objects_writable.clear()

    async def _check(self) -> list[str]:
        store_problems, writable = await asyncio.gather(self._check_store(), self._objects_writable.get())
        problems = store_problems + ([] if writable else [NO_OBJECTS])
        try:
            self._notifications.check()
        except RuntimeError as problem:
            logger.warning("not ready: %s", problem)
            problems.append(NO_NOTIFICATIONS)
        return problems

    async def _check_store(self) -> list[str]:
        tasks = self._tasks
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                if missing := await probe(self._prober, tasks.prefix):
                    raise StoreRefused(NO_PERMISSION, missing[0])
                memory = await tasks.reads.memory()
                has_dispatcher = await tasks.reads.has_dispatcher()
        except OutOfMemoryError:
            return [STORE_FULL]
        except (RedisError, TimeoutError) as problem:
            reason = describe_store_problem(problem)
            logger.warning("not ready: task store: %s", problem if reason else type(problem).__name__)
            return [f"{STORE_REFUSES}: {reason}" if reason else NO_STORE]
        is_full = memory.is_fuller_than(tasks.limits.max_memory)
        return [*((STORE_FULL,) if is_full else ()), *(() if has_dispatcher else (NO_DISPATCHER,))]

    async def _check_objects(self) -> bool:
        key = f"{_PROBE}/{uuid.uuid4().hex}"
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                await self._objects.put(key, b"", "application/octet-stream")
                await self._objects.delete([key])
        except UNREACHABLE as problem:
            logger.warning("not ready: object store: %s", type(problem).__name__)
            return False
        return True
