"""A project's tasks: list, cancel, share by link."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from serve_app.api.auth import Generator, TaskReader
from serve_app.api.bodies import JsonRoute
from serve_app.api.errors import ApiError
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import TaskPage, TaskResult, TaskSummary, errors
from serve_app.api.services import Deps, Services
from serve_app.submission.errors import Invalid
from serve_app.tasks.task import Job, NewerJob, Status, Task

router = APIRouter(prefix="/v1/tasks", tags=["tasks"], route_class=JsonRoute)

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
    tasks, following = await list_page(services, caller.project.id, query)
    base = public_base(request, services.settings.service)
    summaries = [_summary(task, _prompt(task), await services.presenter.thumbnail(task, base)) for task in tasks]
    return TaskPage(tasks=summaries, next=following)


async def list_page(services: Services, project: str, query: TaskQuery) -> tuple[list[Task], str | None]:
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


_LONGEST_S = 7 * 24 * 3600
"""Object stores sign for no longer."""


class CreateLinkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    expires_in: int = Field(default=24 * 3600, ge=60, le=_LONGEST_S, description="Seconds")


class ResultLink(BaseModel):
    url: str
    expires: float = Field(description="Epoch seconds: as was asked for, or when the result is not kept any more")


@router.post("/{task_id}/links", responses=errors(403, 404, 409, 503))
async def create_link(
    request: Request,
    services: Deps,
    caller: TaskReader,
    task_id: Annotated[str, Path(max_length=64)],
    request_body: CreateLinkRequest,
) -> ResultLink:
    """A link to the result of a ready task of the key's project."""
    task = await services.tasks.get(task_id)
    if task is None or task.project != caller.project.id:
        raise ApiError(404, "task_not_found", "Task not found")
    if task.status is not Status.READY or task.result is None or task.finished is None:
        raise ApiError(409, "no_result", f"The task has no result: it is {task.status.value}")
    now, expiry = time.time(), task.finished + services.settings.tasks.retention_s
    expires = min(now + request_body.expires_in, expiry)
    base = public_base(request, services.settings.service)
    url = await services.presenter.link(task.result["key"], base, max(expires - now, 1.0), exact=True)
    return ResultLink(url=url, expires=expires)
