"""Drafts of videos: what is kept of one, and how a later request finds it again.

A draft is named by its task's id, or by the link to its latents that its result had. Links are only read, never
followed: what counts is whether the task belongs to the caller's project, not whether a link is still good.
"""

from __future__ import annotations

import re
from typing import Final, LiteralString
from urllib.parse import unquote, urlsplit

from deployments.contract.clip import FPS
from deployments.contract.objects import ObjectStore
from serve_app.requests.draft import Draft
from serve_app.submission.storing import reached
from serve_app.tasks.job import Job, NewerJob
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task

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


async def find(tasks: TaskStore, objects: ObjectStore, project: str, endpoint: str, named: str) -> Draft:
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
