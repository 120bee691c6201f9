"""Storage of a submission's inputs and drafts, removed again when it is refused.

They are reserved first (tasks/store.py): what can't be deleted at once, because the store is away or this process dies,
is swept with its reservation.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Mapping
from typing import Final, LiteralString, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from deployments.contract.job import FPS
from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.inputs.images import InputPicture
from serve_app.inputs.inputs import InputVideo
from serve_app.schemas.plan import Draft
from serve_app.submission.errors import StorageOutOfReach
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Job, NewerJob, Status, Task

logger = logging.getLogger(__name__)

T = TypeVar("T")
File: TypeAlias = InputPicture | InputVideo


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


_ID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TASK: Final = re.compile(_ID, re.IGNORECASE)
_KEY: Final = re.compile(rf"(?:^|/)results/({_ID})/\d+/draft\.safetensors\Z", re.IGNORECASE)


class DraftProblem(ValueError):
    """There is no such draft to go on from. The message is fit for the client's eyes."""

    def __init__(self, message: str, kind: LiteralString) -> None:
        super().__init__(message)
        self.kind = kind


def task_named(draft: str) -> str | None:
    """The id of the task that a request means by `draft`: an id, or a link to the draft's latents."""
    text = draft.strip()
    if _TASK.fullmatch(text):
        return text.lower()
    try:
        link = urlsplit(text)
    except ValueError:
        return None
    found = _KEY.search(unquote(link.path)) if link.scheme in ("http", "https") else None
    return found[1].lower() if found else None


def _kept_of(task: Task, job: Job) -> Draft | None:
    """What a task left as a draft, None if it left none."""
    result = task.result or {}
    kept = result.get("draft")
    if kept is None:
        return None
    return Draft(
        task=task.id,
        key=kept["key"],
        prompt=result["prompt"],
        seed=result["seed"],
        seconds=kept["frames"] // FPS,
        width=kept["width"],
        height=kept["height"],
        sound=kept["sound"],
        references=job.references,
        times=job.clip.times if job.clip else (),
        start=job.start_video,
    )


def _job_of(task: Task) -> Job:
    if not task.job:
        raise DraftProblem("This draft can't be read any more; make it anew", "draft_expired")
    try:
        return Job.decode(task.job)
    except NewerJob:
        raise DraftProblem("This draft is of a newer release; try again shortly", "draft_newer") from None


async def find_draft(tasks: TaskStore, objects: ObjectStore, project: str, endpoint: str, named: str) -> Draft:
    """The draft that `named` stands for, if it was made by `endpoint` in `project`.

    Raises DraftProblem, or StorageOutOfReach.
    """
    task_id = task_named(named)
    task = await tasks.get(task_id) if task_id else None
    if task is None or task.project != project:
        raise DraftProblem("There is no such task in this project, or it is no longer kept", "draft_unknown")
    job = _job_of(task) if task.endpoint == endpoint else None
    if job is None or job.clip is None or not job.clip.draft:
        raise DraftProblem(f"This task is no draft; a draft is a task of {endpoint} with `draft` true", "not_a_draft")
    if not task.status.terminal:
        raise DraftProblem("This draft is not ready yet; wait until its task is", "draft_not_ready")
    draft = _kept_of(task, job) if task.status is Status.READY else None
    if draft is None:
        raise DraftProblem(f"This draft came to nothing: its task ended as {task.status.value}", "draft_failed")
    if draft.key not in await reached(objects.keys(draft.key.rpartition("/")[0])):
        raise DraftProblem("This draft is no longer kept; make it anew", "draft_expired")
    return draft
