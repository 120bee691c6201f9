"""Admin routes of projects, their tasks, and deletion of their data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from serve_app.accounts.audit import IndexFull, Window, midnight
from serve_app.accounts.organizations import Name
from serve_app.accounts.projects import LEAST_WEIGHT, MOST_ACTIVE, MOST_WEIGHT
from serve_app.accounts.projects import Project as StoredProject
from serve_app.accounts.roles import Permission
from serve_app.api.auth import AccountReader, ProjectMaker
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import LATER, OrganizationId, project_within, resolve_organization
from serve_app.api.routes.schemas import TaskPage, conceal_id, errors
from serve_app.api.routes.tasks import NO_CURSOR, TaskQuery, list_page, without_content
from serve_app.api.services import Deps
from serve_app.submission.errors import Invalid

router = APIRouter(route_class=JsonRoute)

ProjectPath = Annotated[str, Path(max_length=64)]
Credits = Annotated[float, Field(ge=0, le=1e12)]

_LIMITS = ("limit_day", "limit_week", "limit_month")
_PERMISSIONS: Mapping[str, Permission] = {
    **dict.fromkeys(_LIMITS, Permission.SET_LIMITS),
    # What a project takes from others.
    **dict.fromkeys(("weight", "max_active"), Permission.OPERATE),
    **dict.fromkeys(("statuses", "closed"), Permission.MANAGE_PROJECTS),
}


class CreateProjectRequest(BaseModel):
    id: Name


class UpdateProjectRequest(BaseModel):
    """What is left out stays as it is; null means the default."""

    model_config = ConfigDict(extra="forbid")

    weight: Annotated[float, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)] | None = Field(
        default=None, description="Share of the queue against other projects; 1 by default. An operator's to set"
    )
    statuses: Literal["full", "basic"] | None = Field(
        default=None, description="basic shows Reasoning and Generating as Pending"
    )
    max_active: Annotated[int, Field(ge=1, le=MOST_ACTIVE)] | None = Field(
        default=None, description="Tasks that have not ended, at a time. An operator's to set"
    )
    closed: bool | None = Field(default=None, description="Whether it takes neither tasks nor tuned models")
    limit_day: Credits | None = Field(default=None, description="Credits, UTC days; null for no limit")
    limit_week: Credits | None = Field(default=None, description="Credits, ISO weeks in UTC")
    limit_month: Credits | None = Field(default=None, description="Credits, months in UTC")


class SpendingWindow(BaseModel):
    window: Window
    spent: float = Field(description="Credits, holds of tasks on their way included")
    limit: float | None = Field(description="Credits; null for no limit")
    resets: datetime


class Project(BaseModel):
    id: str
    organization: str
    weight: float
    statuses: Literal["full", "basic"]
    max_active: int
    closed: bool = Field(description="Takes neither tasks nor tuned models")
    spending: list[SpendingWindow] = Field(description="In the present day, week and month")


class ProjectList(BaseModel):
    projects: list[Project]


@router.get("/projects", responses=errors(403, 404, 503))
async def list_projects(services: Deps, caller: AccountReader, organization: OrganizationId = None) -> ProjectList:
    projects = await services.accounts.projects.list(await resolve_organization(services, caller, organization))
    return ProjectList(projects=[await _view(services, project) for project in projects])


@router.post("/projects", status_code=201, responses=errors(403, 404, 409, 429, 503))
async def create_project(
    services: Deps, caller: ProjectMaker, new: CreateProjectRequest, organization: OrganizationId = None
) -> Project:
    chosen = await resolve_organization(services, caller, organization)
    most = None if caller.may(Permission.OPERATE) else services.settings.accounts.max_projects
    try:
        if not await services.accounts.projects.create(new.id, chosen, caller.id, most):
            raise HTTPException(409, "There is a project of that id")
    except IndexFull:
        detail = f"Too many projects: this organization may have {most}; an operator may make more for it"
        raise HTTPException(429, detail, LATER) from None
    return await _view(services, await project_within(services, caller, new.id))


@router.get("/projects/{project}", responses=errors(403, 404, 503))
async def get_project(services: Deps, caller: AccountReader, project: ProjectPath) -> Project:
    return await _view(services, await project_within(services, caller, project))


@router.patch("/projects/{project}", responses=errors(403, 404, 409, 503))
async def update_project(
    services: Deps, caller: AccountReader, project: ProjectPath, changes: UpdateProjectRequest
) -> Project:
    """Limits hold from the next submission on; all else is seen everywhere within 10 s."""
    fields = changes.model_dump(exclude_unset=True)
    if not fields:
        raise Invalid(["body"], f"name at least one of: {', '.join(UpdateProjectRequest.model_fields)}")
    for permission in dict.fromkeys(map(_PERMISSIONS.__getitem__, sorted(fields))):
        if not caller.may(permission):
            names = ", ".join(sorted(name for name in fields if _PERMISSIONS[name] is permission))
            raise HTTPException(403, f"Not allowed: {names} takes the permission to {permission}")
    project_record = await project_within(services, caller, project)
    if "closed" in fields:
        fields["closed"] = fields["closed"] or None
        if not fields["closed"] and await services.accounts.deletion.is_running(project_record.id):
            raise HTTPException(409, "This project is being erased: have that done first, then open it")
    await services.accounts.projects.change(project_record, _in_millicredits(fields), caller.id)
    return await _view(services, await project_within(services, caller, project))


def _in_millicredits(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value * 1000) if name in _LIMITS and value is not None else value for name, value in fields.items()
    }


async def _view(services: Deps, project: StoredProject) -> Project:
    limits = {"day": project.limit_day, "week": project.limit_week, "month": project.limit_month}
    spending = [
        SpendingWindow(
            window=each.window,
            spent=each.spent / 1000,
            limit=None if (limit := limits[each.window]) is None else limit / 1000,
            resets=midnight(each.until),
        )
        for each in await services.accounts.credits.spending(project.id)
    ]
    return Project(
        id=project.id,
        organization=project.organization,
        weight=project.weight,
        statuses=project.statuses,
        closed=project.closed,
        max_active=project.max_active or services.settings.tasks.max_active,
        spending=spending,
    )


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


@router.post("/projects/{project}/erasure", responses=errors(403, 404, 503))
async def erase_project(
    services: Deps, caller: ProjectMaker, project: ProjectPath, confirmation: EraseProjectRequest
) -> Erasure:
    """Closes the project and erases what it has: tasks with their inputs and results, webhooks, tuned models, replies.

    Running tasks are stopped and cost nothing. Answers after at most about 20 s: ask again until `done` is there. The
    project stays closed until it is opened again.
    """
    if confirmation.project != project:
        raise Invalid(["body", "project"], "must be the id of the project whose data is to be erased", "not_confirmed")
    project_record = await project_within(services, caller, project)
    return Erasure.model_validate(await services.accounts.deletion.erase(project_record, caller.id, _WITHIN_S))


@router.get("/projects/{project}/erasure", responses=errors(403, 404, 503))
async def get_erasure(services: Deps, caller: ProjectMaker, project: ProjectPath) -> Erasure:
    """When the latest erasure of the project began, and when it was done."""
    project_record = await project_within(services, caller, project)
    erasure = await services.accounts.deletion.get(project_record.id)
    if erasure is None:
        raise HTTPException(404, "Nothing of this project was erased")
    return Erasure.model_validate(erasure)


class ProjectTaskQuery(TaskQuery):
    project: str = Field(max_length=64)
    cursor: str | None = Field(default=None, max_length=400, description="`next` of the page before")


@router.get("/tasks", responses=errors(403, 404, 503))
async def list_project_tasks(
    services: Deps, caller: AccountReader, query: Annotated[ProjectTaskQuery, Query()]
) -> TaskPage:
    """The tasks of a project that are still kept, newest first.

    Their prompts and images are its own keys' to see, and so are their ids, by which results are read: others get
    `sha256:…` in place of them.
    """
    chosen = await project_within(services, caller, query.project)
    if chosen.id == caller.project.id:
        return without_content(services, *await list_page(services, chosen.id, query))
    # A cursor has an id in it, too.
    cursor = query.cursor and services.sealer.open_or_none(query.cursor)
    if query.cursor and not cursor:
        raise Invalid(["query", "cursor"], NO_CURSOR)
    tasks, following = await list_page(services, chosen.id, query.model_copy(update={"cursor": cursor}))
    page = without_content(services, tasks, following and services.sealer.seal(following))
    rows = [row.model_copy(update={"id": conceal_id(row.id)}) for row in page.tasks]
    return page.model_copy(update={"tasks": rows})
