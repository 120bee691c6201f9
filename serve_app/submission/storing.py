"""Inputs of a task that is not submitted yet: into the object store, and out of it again where nothing came of it.

They are reserved first (tasks/store.py): what can't be deleted at once, because the store is away or this process dies,
is swept with its reservation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Final, TypeAlias, TypeVar

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.media.decoding import InputPicture
from serve_app.media.videos import InputVideo
from serve_app.submission.errors import StorageOutOfReach
from serve_app.tasks.store import TaskStore

T = TypeVar("T")
File: TypeAlias = InputPicture | InputVideo

logger = logging.getLogger(__name__)

_AT_A_TIME: Final = 8
"""Of one submission."""
_PATIENCE_S: Final = 60.0
"""For all inputs of a submission together."""
_DISCARD_S: Final = 5.0


async def store(tasks: TaskStore, objects: ObjectStore, project: str, task_id: str, files: Mapping[str, File]) -> None:
    """Stores `files` under their keys, several at a time. Raises StorageOutOfReach; then none is kept."""
    if not files:
        return
    await tasks.reserve(task_id, project)
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def put(key: str, file: File) -> None:
        async with turns:
            await objects.put(key, file.data, file.content_type)

    # All come to their end, so that nothing arrives after it was discarded. What is still on its way when the patience
    # is over is swept.
    ends = await reached(asyncio.gather(*(put(*each) for each in files.items()), return_exceptions=True))
    failures = [end for end in ends if end is not None]
    for failure in failures:
        if not isinstance(failure, UNREACHABLE):
            raise failure
    if failures:
        await discard(tasks, objects, task_id)
        raise _out_of_reach(failures[0])


async def discard(tasks: TaskStore, objects: ObjectStore, task_id: str) -> None:
    """Deletes what was stored for a task that was not submitted, or leaves it to the sweep."""
    try:
        async with asyncio.timeout(_DISCARD_S):
            await objects.delete_prefix(f"inputs/{task_id}")
    except UNREACHABLE as problem:
        logger.warning("inputs of a refused task are left to the sweep: %s", type(problem).__name__)
    else:
        await tasks.sweep([task_id], limit=0)


async def reached(call: Awaitable[T]) -> T:
    """What a call of the object store comes to. Raises StorageOutOfReach where it fails or takes too long."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await call
    except UNREACHABLE as problem:
        raise _out_of_reach(problem) from None


def _out_of_reach(problem: BaseException) -> StorageOutOfReach:
    logger.warning("object store out of reach: %s: %.300s", type(problem).__name__, problem)
    return StorageOutOfReach()
