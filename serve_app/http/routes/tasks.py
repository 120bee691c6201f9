"""A project's own tasks: list, cancel."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from serve_app.http.auth import Generator, TaskReader
from serve_app.http.errors import ApiError
from serve_app.http.origin import public_base
from serve_app.http.routes.schemas import TaskPage, TaskResult, TaskSummary, errors
from serve_app.http.services import Deps, Services
from serve_app.submission.errors import Invalid
from serve_app.tasks.job import Job, NewerJob
from serve_app.tasks.task import Status, Task

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

_PROMPT_CHARS: Final = 500
"""Of a prompt in a list."""


class TaskQuery(BaseModel):
    """Which tasks are listed."""

    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, max_length=80, description="`next` of the page before")
    active: bool = Field(default=False, description="Only tasks that have not ended")
    status: list[Status] = Field(default=[], max_length=8, description="Only tasks of this status; may be repeated")
    endpoint: str | None = Field(default=None, max_length=100, description="Only of this endpoint: gen-3-image-klein")
    since: float | None = Field(
        default=None, ge=0, le=1e11, allow_inf_nan=False, description="Only what was submitted since, epoch seconds"
    )


@router.get("", responses=errors(403, 503))
async def list_tasks(
    request: Request, services: Deps, caller: TaskReader, query: Annotated[TaskQuery, Query()]
) -> TaskPage:
    """The tasks of the key's project that are still kept, newest first."""
    tasks, following = await page_of(services, caller.project.id, query)
    base = public_base(request, services.settings.service)
    shown = [_summary(task, _prompt(task), await services.presenter.thumbnail(task, base)) for task in tasks]
    return TaskPage(tasks=shown, next=following)


async def page_of(services: Services, project: str, query: TaskQuery) -> tuple[list[Task], str | None]:
    """The tasks of a page, and the cursor of the next one."""
    try:
        return await services.tasks.list_tasks(
            project,
            limit=query.limit,
            cursor=query.cursor,
            active=query.active,
            statuses=query.status,
            endpoints=() if query.endpoint is None else (query.endpoint,),
            since=query.since,
        )
    except ValueError:
        raise Invalid(["query", "cursor"], "Not a cursor: pass `next` of the page before, unchanged") from None


def without_content(tasks: list[Task], following: str | None) -> TaskPage:
    """A page for those who may know of the tasks, but not what was asked and made."""
    return TaskPage(tasks=[_summary(task, None, None) for task in tasks], next=following)


@router.delete("/{task_id}", responses=errors(403, 404, 409, 503), response_model_exclude_unset=True)
async def cancel_task(services: Deps, caller: Generator, task_id: Annotated[str, Path(max_length=64)]) -> TaskResult:
    """Cancels a task of the key's project: it ends as `Error` and costs nothing; its work stops at the next step."""
    outcome = await services.tasks.cancel(task_id, caller.project.id)
    task = await services.tasks.get(task_id) if outcome else None
    if task is None:
        raise ApiError(404, "task_not_found", "Task not found")
    if outcome == 2:
        raise ApiError(409, "task_ended", f"The task has ended already: {task.status.value}")
    return TaskResult(
        id=task.id, status=task.status, result=None, progress=task.progress, details=task.details, preview=None
    )


def _prompt(task: Task) -> str | None:
    """None where the record can't be read: the key that it was sealed with is gone, or a later release wrote it."""
    try:
        prompt = Job.decode(task.job).prompt if task.job else None
    except (NewerJob, ValueError):
        return None
    return prompt if prompt is None or len(prompt) <= _PROMPT_CHARS else f"{prompt[:_PROMPT_CHARS]}…"


def _summary(task: Task, prompt: str | None, thumbnail: str | None) -> TaskSummary:
    return TaskSummary(
        id=task.id,
        endpoint=task.endpoint,
        status=task.status,
        prompt=prompt,
        thumbnail=thumbnail,
        progress=1.0 if task.status is Status.READY else task.progress,
        attempt=task.attempt,
        created=task.created,
        started=task.started,
        finished=task.finished,
        cost=None if task.cost is None else task.cost / 1000,
    )
