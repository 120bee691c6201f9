"""Erasure of what a project has."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from serve_app.http.auth import ProjectMaker
from serve_app.http.bodies import JsonRoute
from serve_app.http.routes.admin.projects import ProjectPath
from serve_app.http.routes.admin.scope import project_within
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps
from serve_app.submission.errors import Invalid

router = APIRouter(prefix="/projects/{project}/erasure", route_class=JsonRoute)

_WITHIN_S: Final = 20.0
"""Of one request: less than clients and proxies wait for an answer."""


class EraseProjectRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    project: str = Field(max_length=64, description="The project's id once more: what is erased is gone")


class Erasure(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    project: str
    by: str
    began: float = Field(description="Epoch seconds; the project is closed since")
    done: float | None = Field(description="Epoch seconds; null: not yet, ask for it again")


@router.post("", responses=errors(403, 404, 503))
async def erase_project(
    services: Deps, caller: ProjectMaker, project: ProjectPath, confirmation: EraseProjectRequest
) -> Erasure:
    """Closes the project and erases what it has: tasks with their inputs and results, webhooks, tuned models, replies.

    Running tasks are stopped and cost nothing. Answers after at most about 20 s: ask again until `done` is there. The
    project stays closed until it is opened again.
    """
    if confirmation.project != project:
        raise Invalid(["body", "project"], "must be the id of the project whose data is to be erased", "not_confirmed")
    stored = await project_within(services, caller, project)
    return Erasure.model_validate(await services.eraser.erase(stored, caller.id, _WITHIN_S))


@router.get("", responses=errors(403, 404, 503))
async def get_erasure(services: Deps, caller: ProjectMaker, project: ProjectPath) -> Erasure:
    """When the latest erasure of the project began, and when it was done."""
    stored = await project_within(services, caller, project)
    found = await services.eraser.get(stored.id)
    if found is None:
        raise HTTPException(404, "Nothing of this project was erased")
    return Erasure.model_validate(found)
