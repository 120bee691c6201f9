"""A project's own tasks: list, cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query

from serve_app.http.auth import Generator, TaskReader
from serve_app.http.routes.schemas import TaskPage, TaskResult, TaskSummary, errors
from serve_app.http.services import Deps, Services
from serve_app.submission.errors import Invalid
from serve_app.tasks.task import Task

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])


Cursor = Annotated[str | None, Query(max_length=80, description="`next` of the page before")]


@router.get("", responses=errors(403, 503))
async def list_tasks(
    services: Deps,
    caller: TaskReader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Cursor = None,
    active: Annotated[bool, Query(description="Only tasks that have not ended")] = False,
) -> TaskPage:
    """The tasks of the key's project that are still kept, newest first."""
    return await page_of(services, caller.project.id, limit, cursor, active)


async def page_of(services: Services, project: str, limit: int, cursor: str | None, active: bool) -> TaskPage:
    try:
        tasks, following = await services.tasks.list_tasks(project, limit=limit, cursor=cursor, active=active)
    except ValueError:
        raise Invalid(["query", "cursor"], "Not a cursor: pass `next` of the page before, unchanged") from None
    return TaskPage(tasks=[_summary(task) for task in tasks], next=following)


@router.delete("/{task_id}", responses=errors(403, 404, 409, 503), response_model_exclude_unset=True)
async def cancel_task(services: Deps, caller: Generator, task_id: Annotated[str, Path(max_length=64)]) -> TaskResult:
    """Cancels a task of the key's project: it ends as `Error` and costs nothing; its work stops at the next step."""
    outcome = await services.tasks.cancel(task_id, caller.project.id)
    task = await services.tasks.get(task_id) if outcome else None
    if task is None:
        raise HTTPException(404, "Task not found")
    if outcome == 2:
        raise HTTPException(409, f"The task has ended already: {task.status.value}")
    return TaskResult(
        id=task.id, status=task.status, result=None, progress=task.progress, details=task.details, preview=None
    )


def _summary(task: Task) -> TaskSummary:
    return TaskSummary(
        id=task.id,
        endpoint=task.endpoint,
        status=task.status,
        progress=task.progress,
        attempt=task.attempt,
        created=task.created,
        started=task.started,
        finished=task.finished,
        cost=None if task.cost is None else task.cost / 1000,
    )
