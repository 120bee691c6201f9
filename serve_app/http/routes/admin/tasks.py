"""The tasks of any project of the organization."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from serve_app.http.auth import AccountReader
from serve_app.http.routes.admin.scope import project_within
from serve_app.http.routes.schemas import TaskPage, errors
from serve_app.http.routes.tasks import TaskQuery, page_of, without_content
from serve_app.http.services import Deps

router = APIRouter(prefix="/tasks")


class ProjectTaskQuery(TaskQuery):
    project: str = Field(max_length=64)


@router.get("", responses=errors(403, 404, 503))
async def list_project_tasks(
    services: Deps, caller: AccountReader, query: Annotated[ProjectTaskQuery, Query()]
) -> TaskPage:
    """The tasks of a project that are still kept, newest first; their prompts and pictures are its own keys' to see."""
    chosen = await project_within(services, caller, query.project)
    return without_content(*await page_of(services, chosen.id, query))
