"""Whether new tasks can be taken and worked on, and what is missing where they can't: in words, for whoever asks."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from redis.exceptions import RedisError

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.http.shared_answer import SharedAnswer
from serve_app.tasks.store import TaskStore

logger = logging.getLogger(__name__)

NO_STORE: Final = "the task store is out of reach"
STORE_FULL: Final = "the task store is full"
NO_OBJECTS: Final = "the object store takes no objects"
NO_DISPATCHER: Final = "no dispatcher is running"

_LIMIT_S: Final = 2.0
"""For each of what is asked."""
_FRESH_S: Final = 1.0
_OBJECTS_FRESH_S: Final = 10.0
"""Asking costs a write."""
_PROBE: Final = "health"


class Readiness:
    """Costs nothing unless asked, and then no more than a look a second, however many ask."""

    def __init__(self, tasks: TaskStore, objects: ObjectStore) -> None:
        self._tasks = tasks
        self._objects = objects
        self._writable = SharedAnswer(self._takes_objects, _OBJECTS_FRESH_S)
        self._missing = SharedAnswer(self._look, _FRESH_S)

    async def missing(self) -> list[str]:
        """Empty where nothing is."""
        return await self._missing.get()

    async def _look(self) -> list[str]:
        of_store, writable = await asyncio.gather(self._of_store(), self._writable.get())
        return [*of_store, *(() if writable else (NO_OBJECTS,))]

    async def _of_store(self) -> list[str]:
        tasks = self._tasks
        try:
            async with asyncio.timeout(_LIMIT_S):
                used, most = await tasks.memory()
                dispatched = await tasks.has_dispatcher()
        except (RedisError, TimeoutError) as problem:
            logger.warning("not ready, as the task store is out of reach: %s", type(problem).__name__)
            return [NO_STORE]
        full = most > 0 and used > tasks.limits.max_memory * most
        return [*((STORE_FULL,) if full else ()), *(() if dispatched else (NO_DISPATCHER,))]

    async def _takes_objects(self) -> bool:
        key = f"{_PROBE}/{uuid.uuid4().hex}"
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._objects.put(key, b"", "application/octet-stream")
                await self._objects.delete([key])
        except UNREACHABLE as problem:
            logger.warning("not ready, as the object store takes no objects: %s", type(problem).__name__)
            return False
        return True
