"""Links to a result that can be passed on: whoever has one sees it without a key, until it expires."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from serve_app.http.auth import TaskReader
from serve_app.http.bodies import JsonRoute
from serve_app.http.errors import ApiError
from serve_app.http.origin import public_base
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps
from serve_app.tasks.task import Status

router = APIRouter(prefix="/v1/tasks/{task_id}/links", tags=["tasks"], route_class=JsonRoute)

_LONGEST_S = 7 * 24 * 3600
"""Object stores sign for no longer."""


class CreateLinkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    expires_in: int = Field(default=24 * 3600, ge=60, le=_LONGEST_S, description="Seconds")


class ResultLink(BaseModel):
    url: str
    expires: float = Field(description="Epoch seconds: as was asked for, or when the result is not kept any more")


@router.post("", responses=errors(403, 404, 409, 503))
async def create_link(
    request: Request,
    services: Deps,
    caller: TaskReader,
    task_id: Annotated[str, Path(max_length=64)],
    wish: CreateLinkRequest,
) -> ResultLink:
    """A link to the result of a ready task of the key's project."""
    task = await services.tasks.get(task_id)
    if task is None or task.project != caller.project.id:
        raise ApiError(404, "task_not_found", "Task not found")
    if task.status is not Status.READY or task.result is None or task.finished is None:
        raise ApiError(409, "no_result", f"The task has no result: it is {task.status.value}")
    now, kept_until = time.time(), task.finished + services.settings.tasks.retention_s
    expires = min(now + wish.expires_in, kept_until)
    base = public_base(request, services.settings.service)
    url = await services.presenter.link(task.result["key"], base, max(expires - now, 1.0), exact=True)
    return ResultLink(url=url, expires=expires)
