"""The tasks of any project of the organization."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from serve_app.http.auth import AccountReader
from serve_app.http.routes.admin.scope import project_within
from serve_app.http.routes.schemas import TaskPage, errors
from serve_app.http.routes.tasks import Cursor, page_of
from serve_app.http.services import Deps

router = APIRouter(prefix="/tasks")


@router.get("", responses=errors(403, 404, 503))
async def list_tasks(
    services: Deps,
    caller: AccountReader,
    project: Annotated[str, Query(max_length=64)],
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Cursor = None,
    active: Annotated[bool, Query(description="Only tasks that have not ended")] = False,
) -> TaskPage:
    """The tasks of a project that are still kept, newest first."""
    chosen = await project_within(services, caller, project)
    return await page_of(services, chosen.id, limit, cursor, active)
