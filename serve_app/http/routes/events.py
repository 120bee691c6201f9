"""A task's progress as server-sent events: for pages and scripts that would rather listen than ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from serve_app.http import task_view
from serve_app.http.errors import ApiError
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps
from serve_app.tasks.task import Task

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

_LOOK_EVERY_S: Final = 0.5
_LONGEST_S: Final = 300.0
"""Then the stream ends, and the client, as browsers do by themselves, comes back: a replica that drains gets empty."""
_STREAM: Final[dict[str, Any]] = {
    "description": "Events `status` and, last, `end`; `data` is what `get_result` answers",
    "content": {"text/event-stream": {}},
}
# By its model alone FastAPI would describe an error as a stream, too.
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    code: {
        "description": told["description"],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{told['model'].__name__}"}}},
    }
    for code, told in errors(404, 503).items()
}


async def _known(services: Deps, task_id: Annotated[str, Path(max_length=64, description="The task's id")]) -> str:
    """Before the stream begins: afterwards no status could be told."""
    if await services.tasks.get(task_id) is None:
        raise ApiError(404, "task_not_found", "Task not found")
    return task_id


@router.get("/{task_id}/events", response_class=EventSourceResponse, responses=_ERRORS | {200: _STREAM})
async def stream_task_events(
    request: Request, services: Deps, task_id: Annotated[str, Depends(_known)]
) -> AsyncIterator[ServerSentEvent]:
    """A task's status, progress and previews as they change, and its end. Needs no key: the id is enough."""
    seen: object = None
    with services.watchers.one_more(task_id) as may_wait:
        async for task in task_view.looks(services, task_id, _LOOK_EVERY_S, _LONGEST_S if may_wait else 0):
            if task is None:
                return
            if (here := _told(task)) != seen:
                seen = here
                body = (await task_view.encoded(services, task, request)).decode()
                yield ServerSentEvent(event="end" if task.status.terminal else "status", raw_data=body)


def _told(task: Task) -> object:
    """What a client sees of it; links, which are signed anew every time, are no news."""
    return task.status, task.progress, task.details, task.preview
