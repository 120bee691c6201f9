"""Admin routes of projects, their tasks, and deletion of their data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from serve_app.accounts.audit import IndexFull
from serve_app.accounts.organizations import Name
from serve_app.accounts.projects import MAX_ACTIVE, MAX_WEIGHT, MIN_WEIGHT, Project
from serve_app.accounts.roles import Permission
from serve_app.accounts.windows import Window, midnight
from serve_app.api.auth import AccountReader, ProjectMaker
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import LATER, OrganizationId, project_within, resolve_organization
from serve_app.api.routes.schemas import TaskPage, conceal_id, errors
from serve_app.api.routes.tasks import NO_CURSOR, TaskQuery, list_page, without_content
from serve_app.api.services import Deps
from serve_app.deletion import DeletionRecord
from serve_app.submission.errors import Invalid

router = APIRouter(route_class=JsonRoute)

ProjectPath = Annotated[str, Path(max_length=64)]
Credits = Annotated[float, Field(ge=0, le=1e12)]

_LIMITS = ("limit_day", "limit_week", "limit_month")
_PERMISSIONS: Mapping[str, Permission] = {
    **dict.fromkeys(_LIMITS, Permission.SET_LIMITS),
    # These affect other projects.
    **dict.fromkeys(("weight", "max_active"), Permission.OPERATE),
    **dict.fromkeys(("statuses", "closed"), Permission.MANAGE_PROJECTS),
}


class CreateProjectRequest(BaseModel):
    id: Name


class UpdateProjectRequest(BaseModel):
    """An absent field stays unchanged; null sets the default."""

    model_config = ConfigDict(extra="forbid")

    weight: Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)] | None = Field(
        default=None, description="Share of the queue, relative to other projects; by default 1. For operators only"
    )
    statuses: Literal["full", "basic"] | None = Field(
        default=None, description="basic shows Reasoning and Generating as Pending"
    )
    max_active: Annotated[int, Field(ge=1, le=MAX_ACTIVE)] | None = Field(
        default=None, description="Maximum of unfinished tasks. For operators only"
    )
    closed: bool | None = Field(default=None, description="Whether it refuses tasks and tuned models")
    limit_day: Credits | None = Field(default=None, description="Credits per day (UTC); null for no limit")
    limit_week: Credits | None = Field(default=None, description="Credits per ISO week (UTC)")
    limit_month: Credits | None = Field(default=None, description="Credits per month (UTC)")


class SpendingWindow(BaseModel):
    window: Window
    spent: float = Field(description="Credits, including those held for unfinished tasks")
    limit: float | None = Field(description="Credits; null for no limit")
    resets: datetime


class ProjectDetails(BaseModel):
    id: str
    organization: str
    weight: float
    statuses: Literal["full", "basic"]
    max_active: int
    closed: bool = Field(description="Whether it refuses tasks and tuned models")
    spending: list[SpendingWindow] = Field(description="In the current day, week and month")


class ProjectList(BaseModel):
    projects: list[ProjectDetails]


@router.get("/projects", responses=errors(403, 404, 503))
async def list_projects(services: Deps, caller: AccountReader, organization: OrganizationId = None) -> ProjectList:
    projects = await services.accounts.projects.list(await resolve_organization(services, caller, organization))
    return ProjectList(projects=[await _view(services, project) for project in projects])


@router.post("/projects", status_code=201, responses=errors(403, 404, 409, 429, 503))
async def create_project(
    services: Deps, caller: ProjectMaker, new: CreateProjectRequest, organization: OrganizationId = None
) -> ProjectDetails:
    organization_id = await resolve_organization(services, caller, organization)
    limit = None if caller.may(Permission.OPERATE) else services.settings.accounts.max_projects
    try:
        if not await services.accounts.projects.create(new.id, organization_id, caller.id, limit):
            raise HTTPException(409, "There is a project of that id")
    except IndexFull:
        detail = f"Too many projects: this organization may have {limit}; an operator may create more"
        raise HTTPException(429, detail, LATER) from None
    return await _view(services, await project_within(services, caller, new.id))


@router.get("/projects/{project}", responses=errors(403, 404, 503))
async def get_project(services: Deps, caller: AccountReader, project: ProjectPath) -> ProjectDetails:
    return await _view(services, await project_within(services, caller, project))


@router.patch("/projects/{project}", responses=errors(403, 404, 409, 503))
async def update_project(
    services: Deps, caller: AccountReader, project: ProjectPath, changes: UpdateProjectRequest
) -> ProjectDetails:
    """Changes a project. Limits apply from the next submission on, other settings within 10 s."""
    fields = changes.model_dump(exclude_unset=True)
    if not fields:
        raise Invalid(["body"], f"must have at least one of: {', '.join(UpdateProjectRequest.model_fields)}")
    for permission in dict.fromkeys(map(_PERMISSIONS.__getitem__, sorted(fields))):
        if not caller.may(permission):
            names = ", ".join(sorted(name for name in fields if _PERMISSIONS[name] is permission))
            raise HTTPException(403, f"Not allowed: {names} needs the permission to {permission}")
    project_record = await project_within(services, caller, project)
    if "closed" in fields:
        fields["closed"] = fields["closed"] or None
        if not fields["closed"] and await services.accounts.deletion.is_running(project_record.id):
            raise HTTPException(
                409, "This project is being erased: repeat the erasure until it is done, then open the project"
            )
    for name in fields.keys() & set(_LIMITS):
        if fields[name] is not None:
            fields[name] = round(fields[name] * 1000)
    await services.accounts.projects.change(project_record, fields, caller.id)
    return await _view(services, await project_within(services, caller, project))


async def _view(services: Deps, project: Project) -> ProjectDetails:
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
    return ProjectDetails(
        id=project.id,
        organization=project.organization,
        weight=project.weight,
        statuses=project.statuses,
        closed=project.closed,
        max_active=project.max_active or services.settings.tasks.max_active,
        spending=spending,
    )


_ERASE_S: Final = 20.0
"""Duration of one erasure request, below the timeouts of clients and proxies."""


class EraseProjectRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    project: str = Field(max_length=64, description="The project's id again, as confirmation")


class Erasure(BaseModel):
    project: str
    by: str
    began: float = Field(description="Epoch seconds; the project has been closed since")
    done: float | None = Field(description="Epoch seconds; null if incomplete: repeat the request")


@router.post("/projects/{project}/erasure", responses=errors(403, 404, 503))
async def erase_project(
    services: Deps, caller: ProjectMaker, project: ProjectPath, confirmation: EraseProjectRequest
) -> Erasure:
    """Closes a project and erases its data: tasks with inputs and results, webhooks, tuned models, replies.

    Running tasks are stopped at no cost. A request takes at most about 20 s: repeat it until `done` is set. The project
    stays closed until it is opened again.
    """
    if confirmation.project != project:
        raise Invalid(["body", "project"], "must be the id of the project to erase", "not_confirmed")
    project_record = await project_within(services, caller, project)
    return _erasure(await services.accounts.deletion.erase(project_record, caller.id, _ERASE_S))


@router.get("/projects/{project}/erasure", responses=errors(403, 404, 503))
async def get_erasure(services: Deps, caller: ProjectMaker, project: ProjectPath) -> Erasure:
    """Returns the times of a project's latest erasure."""
    project_record = await project_within(services, caller, project)
    deletion = await services.accounts.deletion.get(project_record.id)
    if deletion is None:
        raise HTTPException(404, "This project was never erased")
    return _erasure(deletion)


def _erasure(deletion: DeletionRecord) -> Erasure:
    return Erasure(project=deletion.project, by=deletion.by, began=deletion.started_at, done=deletion.finished_at)


class ProjectTaskQuery(TaskQuery):
    project: str = Field(max_length=64)
    cursor: str | None = Field(default=None, max_length=400, description="`next` of the previous page")


@router.get("/tasks", responses=errors(403, 404, 503))
async def list_project_tasks(
    services: Deps, caller: AccountReader, query: Annotated[ProjectTaskQuery, Query()]
) -> TaskPage:
    """Lists the tasks of a project, newest first.

    Only keys of the project see prompts, images and ids; an id gives access to the result. Others see `sha256:…`.
    """
    scope = await project_within(services, caller, query.project)
    if scope.id == caller.project.id:
        return without_content(services, *await list_page(services, scope.id, query))
    # Sealed, since a cursor contains an id.
    cursor = query.cursor and services.sealer.open_or_none(query.cursor)
    if query.cursor and not cursor:
        raise Invalid(["query", "cursor"], NO_CURSOR)
    tasks, following = await list_page(services, scope.id, query.model_copy(update={"cursor": cursor}))
    page = without_content(services, tasks, following and services.sealer.seal(following))
    rows = [row.model_copy(update={"id": conceal_id(row.id)}) for row in page.tasks]
    return page.model_copy(update={"tasks": rows})
