"""Storage of a submission's inputs and drafts, removed again when it is refused.

They are reserved first (tasks/reservations.py): if the store is away or this process dies, the sweep deletes them
with their reservation.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, LiteralString, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from deployments.contract.job import InputKeys
from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.inputs.fetch import FileLimits, reserve_memory
from serve_app.inputs.images import InputImage
from serve_app.inputs.inputs import InputVideo
from serve_app.schemas.defaults import Draft
from serve_app.submission.errors import StorageUnreachable
from serve_app.tasks.payload import NewerPayload, TaskPayload
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task

logger = logging.getLogger(__name__)

T = TypeVar("T")
File: TypeAlias = InputImage | InputVideo


_MAX_CONCURRENT: Final = 8
"""Files of one submission that are stored at a time."""
_CALL_LIMIT_S: Final = 60.0
"""Seconds for all inputs of a submission together."""
_DISCARD_S: Final = 5.0


UPLOAD: Final = "upload://"
"""Scheme of references to uploads."""
_UPLOAD: Final = re.compile(rf"{UPLOAD}([0-9a-f-]{{36}})\.([a-z0-9]{{3,4}})")


def upload_key(upload_id: str, extension: str) -> str:
    return f"inputs/{upload_id}/upload.{extension}"


async def read_upload(
    tasks: TaskStore, objects: ObjectStore, project: str, reference: str, limits: FileLimits
) -> bytes:
    """Returns a file that a client of the project uploaded. Raises the error of `limits`, or StorageUnreachable."""

    def admit(size: int) -> None:
        if size > limits.max_bytes:
            raise limits.refuse("the file is too large")
        reserve_memory.get()(size)

    match = _UPLOAD.fullmatch(reference)
    try:
        if match and await tasks.reservations.is_reserved(match[1], project):
            return await call_object_store(objects.get(upload_key(*match.groups()), admit), missing=FileNotFoundError)
    except FileNotFoundError:
        raise limits.refuse("nothing was uploaded there yet") from None
    raise limits.refuse("there is no such upload in this project, or it has expired")


async def store(tasks: TaskStore, objects: ObjectStore, project: str, task_id: str, files: Mapping[str, File]) -> None:
    """Stores `files` under their keys, several at a time. Raises StorageUnreachable; then none is kept."""
    if not files:
        return
    await tasks.reservations.reserve(task_id, project)
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def upload(key: str, file: File) -> None:
        async with slots:
            await objects.put(key, file.data, file.content_type)

    # All uploads end before the discard, so that none arrives after it. The sweep deletes those that exceed the limit.
    errors = await call_object_store(asyncio.gather(*(upload(*each) for each in files.items()), return_exceptions=True))
    failures = [error for error in errors if error is not None]
    for failure in failures:
        if not isinstance(failure, UNREACHABLE):
            raise failure
    if failures:
        await discard(tasks, objects, task_id, files)
        raise _storage_error(failures[0])


async def discard(tasks: TaskStore, objects: ObjectStore, task_id: str, keys: Iterable[str]) -> None:
    """Deletes the inputs of a task that was not submitted, or leaves them to the sweep."""
    try:
        async with asyncio.timeout(_DISCARD_S):
            await objects.delete(list(keys))
    except UNREACHABLE as problem:
        logger.warning("inputs of a refused task are left to the sweep: %s", type(problem).__name__)
    else:
        await tasks.sweep([task_id], limit=0)


async def call_object_store(call: Awaitable[T], missing: type[Exception] | tuple[()] = ()) -> T:
    """Awaits a call of the object store. Raises StorageUnreachable if it fails or takes too long; `missing` passes."""
    try:
        async with asyncio.timeout(_CALL_LIMIT_S):
            return await call
    except missing:
        raise
    except UNREACHABLE as problem:
        raise _storage_error(problem) from None


def _storage_error(problem: BaseException) -> StorageUnreachable:
    logger.warning("object store out of reach: %s: %.300s", type(problem).__name__, problem)
    return StorageUnreachable()


_ID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TASK: Final = re.compile(_ID, re.IGNORECASE)
_KEY: Final = re.compile(rf"(?:^|/)results/({_ID})/\d+/draft\.safetensors\Z", re.IGNORECASE)


UNKNOWN_DRAFT: Final = "There is no such task in this project, or it is no longer kept"


class DraftProblem(ValueError):
    """The draft can't be enhanced. Clients see the message."""

    def __init__(self, message: str, kind: LiteralString) -> None:
        super().__init__(message)
        self.kind = kind


def parse_draft_reference(draft: str) -> str | None:
    """Returns the task id in `draft`: an id, or a link to the draft's latents."""
    text = draft.strip()
    if _TASK.fullmatch(text):
        return text.lower()
    try:
        link = urlsplit(text)
    except ValueError:
        return None
    match = _KEY.search(unquote(link.path)) if link.scheme in ("http", "https") else None
    return match[1].lower() if match else None


def _decode_payload(task: Task) -> TaskPayload:
    if not task.payload:
        raise DraftProblem("This draft can't be read any more; make it anew", "draft_expired")
    try:
        return TaskPayload.decode(task.payload)
    except NewerPayload:
        raise DraftProblem("This draft is of a newer release; try again shortly", "draft_newer") from None


async def find_draft(tasks: TaskStore, objects: ObjectStore, project: str, endpoint: str, reference: str) -> Draft:
    """Returns the draft that `reference` stands for, if `endpoint` made it in `project`.

    Raises DraftProblem, or StorageUnreachable.
    """
    task_id = parse_draft_reference(reference)
    task = await tasks.reads.get(task_id) if task_id else None
    if task is None or task.project != project:
        raise DraftProblem(UNKNOWN_DRAFT, "draft_unknown")
    payload = _decode_payload(task) if task.endpoint == endpoint else None
    video = payload.request.video if payload else None
    if payload is None or video is None or not video.draft:
        raise DraftProblem(f"This task is no draft; a draft is a task of {endpoint} with `draft` true", "not_a_draft")
    if not task.status.terminal:
        raise DraftProblem("This draft is not ready yet; wait until its task is", "draft_not_ready")
    result = task.result if task.status is Status.READY else None
    if result is None or result.draft is None:
        raise DraftProblem(f"This draft came to nothing: its task ended as {task.status.value}", "draft_failed")
    latents = result.draft.key
    if latents not in await call_object_store(objects.keys(latents.rpartition("/")[0])):
        raise DraftProblem("This draft is no longer kept; make it anew", "draft_expired")
    return Draft(
        task=task.id,
        prompt=result.prompt,
        seed=result.seed,
        seconds=video.seconds,
        width=result.draft.width,
        height=result.draft.height,
        audio=result.draft.audio,
        inputs=InputKeys(references=payload.inputs.references, start_video=payload.inputs.start_video, draft=latents),
        times=video.times,
    )
