"""Routes of a project's tasks: list, show, cancel, delete, share."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from deployments.contract.request import ResolvedRequest
from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator, TaskReader
from serve_app.api.bodies import JsonRoute
from serve_app.api.errors import ApiError
from serve_app.api.hosts import public_base
from serve_app.api.routes.results import TaskResult
from serve_app.api.routes.schemas import TaskDetails, TaskPage, TaskSummary, errors, task_not_found
from serve_app.api.services import Deps, Services
from serve_app.submission.errors import Invalid
from serve_app.tasks.scripts import CancelOutcome, DeleteOutcome
from serve_app.tasks.task import Status, Task

router = APIRouter(prefix="/v1/tasks", tags=["tasks"], route_class=JsonRoute)

_MAX_PROMPT_CHARS: Final = 500
"""Characters of a prompt in a list."""
NO_CURSOR: Final = "Not a cursor: pass `next` of the previous page, unchanged"


class TaskQuery(BaseModel):
    """Filters and page of a list of tasks."""

    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, max_length=80, description="`next` of the previous page")
    active: bool = Field(default=False, description="Only unfinished tasks")
    status: list[Status] = Field(default=[], max_length=8, description="Only tasks of this status; repeatable")
    endpoint: str | None = Field(default=None, max_length=100, description="Only tasks of this endpoint")
    since: float | None = Field(
        default=None, ge=0, le=1e11, allow_inf_nan=False, description="Only tasks submitted since, epoch seconds"
    )


class PromptQuery(TaskQuery):
    """A TaskQuery for callers who may read prompts."""

    prompt: str = Field(
        default="", max_length=200, description="Only tasks with this text in the prompt, ignoring case"
    )


@router.get("", responses=errors(403, 503))
async def list_tasks(
    request: Request, services: Deps, caller: TaskReader, query: Annotated[PromptQuery, Query()]
) -> TaskPage:
    """Lists the tasks of the key's project, newest first."""
    tasks, following = await list_page(services, caller.project.id, query, query.prompt)
    base = public_base(request, services.settings.service)
    thumbnails = [await services.tasks.serializer.thumbnail(task, base) for task in tasks]
    summaries = [
        _summary(services, task, _shorten(task.prompt), each) for task, each in zip(tasks, thumbnails, strict=True)
    ]
    return TaskPage(tasks=summaries, next=following)


@router.get("/{task_id}", responses=errors(403, 404, 503))
async def get_task(
    request: Request, services: Deps, caller: TaskReader, task_id: Annotated[str, Path(max_length=64)]
) -> TaskDetails:
    """Returns prompt, parameters, times and cost of a task of the key's project."""
    task = await find_task(services, caller, task_id)
    thumbnail = await services.tasks.serializer.thumbnail(task, public_base(request, services.settings.service))
    payload = task.read_payload()
    return TaskDetails(
        **dict(_summary(services, task, task.prompt, thumbnail)),
        parameters={} if payload is None else _parameters(payload.request),
        inputs=0 if payload is None else len(replace(payload.inputs, draft=None).keys),
        shared=bool(task.shared),
    )


async def find_task(services: Services, caller: Caller, task_id: str) -> Task:
    """Returns a task of the caller's project. Raises 404."""
    task = await services.tasks.store.reads.get(task_id)
    if task is None or task.project != caller.project.id:
        raise task_not_found()
    return task


_PARAMETERS: Final = ("width", "height", "steps", "guidance", "strength", "seed", "output_format", "negative_prompt")


def _parameters(request: ResolvedRequest) -> dict[str, str | int | float | bool]:
    values = {name: getattr(request, name) for name in _PARAMETERS}
    if request.open_ratio:
        del values["width"], values["height"]
    if request.video is not None:
        values |= {name: getattr(request.video, name) for name in ("seconds", "fps", "audio")}
    return {name: value for name, value in values.items() if value not in (None, "")}


async def list_page(
    services: Services, project: str, query: TaskQuery, text: str = ""
) -> tuple[list[Task], str | None]:
    try:
        return await services.tasks.store.reads.list_tasks(
            project,
            limit=query.limit,
            cursor=query.cursor,
            active=query.active,
            statuses=query.status,
            endpoints=() if query.endpoint is None else (query.endpoint,),
            since=query.since,
            text=text,
        )
    except ValueError:
        raise Invalid(["query", "cursor"], NO_CURSOR) from None


def without_content(services: Services, tasks: list[Task], following: str | None) -> TaskPage:
    """Returns a page for callers who may see the tasks, but not their prompts and results."""
    return TaskPage(tasks=[_summary(services, task, None, None) for task in tasks], next=following)


@router.delete("/{task_id}", responses=errors(403, 404, 409, 503), response_model_exclude_unset=True)
async def cancel_task(services: Deps, caller: Generator, task_id: Annotated[str, Path(max_length=64)]) -> TaskResult:
    """Cancels a task of the key's project. It ends as `Error` at no cost, and stops at its next step."""
    outcome = await services.tasks.store.cancel(task_id, caller.project.id)
    task = None if outcome is CancelOutcome.UNKNOWN else await services.tasks.store.reads.get(task_id)
    if task is None:
        raise task_not_found()
    if outcome is CancelOutcome.ENDED:
        raise ApiError(409, "task_ended", f"The task has already ended: {task.status.value}")
    return TaskResult(
        id=task.id, status=task.status, result=None, progress=task.progress, details=task.details, preview=None
    )


def _shorten(prompt: str | None) -> str | None:
    return prompt if prompt is None or len(prompt) <= _MAX_PROMPT_CHARS else f"{prompt[:_MAX_PROMPT_CHARS]}…"


def _summary(services: Services, task: Task, prompt: str | None, thumbnail: str | None) -> TaskSummary:
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
        expires=None if task.finished is None else task.finished + services.settings.tasks.retention_s,
        cost=None if task.cost is None else task.cost / 1000,
    )


@router.delete("/{task_id}/result", status_code=204, responses=errors(403, 404, 409, 503))
async def delete_result(services: Deps, caller: Generator, task_id: Annotated[str, Path(max_length=64)]) -> None:
    """Deletes an ended task before its retention is over: its result, inputs and record.

    It can no longer be read. Files are deleted within seconds, or after delivery of the task's webhook; files of a task
    without a result within an hour. Files that a running video needs are deleted after that video. Charges stay in the
    ledger.
    """
    outcome = await services.tasks.store.delete(task_id, caller.project.id)
    if outcome is DeleteOutcome.UNKNOWN:
        raise task_not_found()
    if outcome is DeleteOutcome.UNFINISHED:
        raise ApiError(409, "conflict", "The task is unfinished: cancel it first")


_MAX_LINK_S = 7 * 24 * 3600
"""Maximum lifetime of a signed link in object stores."""


class CreateLinkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    expires_in: int = Field(default=24 * 3600, ge=60, le=_MAX_LINK_S, description="Seconds")


class ResultLink(BaseModel):
    url: str = Field(description="Link to the file")
    page: str = Field(description="Link to a page with the result and its prompt, until `expires` or its revocation")
    expires: float = Field(description="Epoch seconds; not later than the deletion of the result")


@router.post("/{task_id}/links", responses=errors(403, 404, 409, 503))
async def create_link(
    request: Request,
    services: Deps,
    caller: TaskReader,
    task_id: Annotated[str, Path(max_length=64)],
    request_body: CreateLinkRequest,
) -> ResultLink:
    """Creates a link to the result of a ready task of the key's project."""
    task = await find_task(services, caller, task_id)
    if task.status is not Status.READY or task.result is None or task.finished is None:
        raise ApiError(409, "no_result", f"The task has no result: it is {task.status.value}")
    now, expiry = time.time(), task.finished + services.settings.tasks.retention_s
    expires = min(now + request_body.expires_in, expiry)
    base, life_s = public_base(request, services.settings.service), max(expires - now, 1.0)
    url = await services.tasks.serializer.link(task.result.key, base, life_s, exact=True)
    if not (token := await services.tasks.store.share(task_id, caller.project.id)):
        raise task_not_found()  # deleted meanwhile
    page = base + services.links.sign(f"{task_id}/{token}", life_s, now, exact=True, method="SHARE")
    return ResultLink(url=url, page=page, expires=expires)


@router.delete("/{task_id}/links", status_code=204, responses=errors(403, 404, 503))
async def revoke_links(services: Deps, caller: Generator, task_id: Annotated[str, Path(max_length=64)]) -> None:
    """Revokes all links to the page of a task of the key's project.

    Links to its file can't be revoked: pages opened before have one that expires within an hour.
    """
    await find_task(services, caller, task_id)
    await services.tasks.store.unshare(task_id, caller.project.id)
