"""Routes of polling, event streams and result files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import re
import stat
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import MalformedRangeHeader, RangeNotSatisfiable
from starlette.staticfiles import NotModifiedResponse, StaticFiles

from deployments.contract.job import media_type
from serve_app.api.errors import ApiError
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import errors, task_not_found
from serve_app.api.services import Deps, Services
from serve_app.tasks.serializer import encode_body, not_found
from serve_app.tasks.task import Status, Task


class TaskResult(BaseModel):
    """Status of a task and, once it is `Ready`, its result."""

    id: str
    status: Status
    result: dict[str, Any] | None = None
    progress: float | None = Field(default=None, description="0.0 to 1.0, never decreases; null if unknown")
    details: dict[str, Any] | None = Field(
        default=None,
        description="An unfinished task has, if known: `eta` (seconds until the result), `eta_range` (its 80 % range), "
        "`queue_position` (1 is next) while it waits, and a `message` while its model starts. A finished task has "
        "`Moderation Reasons`, `error`, or beside a result `warnings` about ignored parts of the request",
    )
    preview: dict[str, Any] | None = None
    cost: float | None = Field(default=None, description="Settled cost in credits, once known")


async def make_body(services: Services, task: Task, request: Request) -> dict[str, Any]:
    """Returns the response of polling in the client's vocabulary, without an eta."""
    user_agent = request.headers.get("user-agent", "")
    if any(client in user_agent for client in services.settings.service.basic_status_clients):
        vocabulary = "basic"
    else:
        vocabulary = (await services.accounts.projects.get(task.project)).statuses
    base = public_base(request, services.settings.service)
    return await services.tasks.serializer.body(task, base, vocabulary)


async def encode_with_eta(services: Services, task: Task, body: dict[str, Any]) -> bytes:
    """Encodes the response of polling, with the eta of an unfinished task as `details`."""
    if not task.status.terminal:
        body = body | {"details": await services.tasks.etas.details(task)}
    return encode_body(body)


async def task_views(
    services: Services, task_id: str, timeout_s: float, *, changes: bool = False
) -> AsyncIterator[Task | None]:
    """Yields the task at once and when it ends, with `changes` also when it changes; None if it does not exist.

    Ends after `timeout_s`. It also yields the task periodically, since notifications can be lost.
    """
    deadline = time.monotonic() + timeout_s
    with services.tasks.notifications.expect(task_id, changes=changes) as event:
        while True:
            event.clear()
            if changes:
                await services.tasks.notifications.watch(task_id)
            task = await services.tasks.store.reads.get(task_id)
            yield task
            remaining = deadline - time.monotonic()
            if task is None or task.status.terminal or remaining <= 0:
                return
            poll_s = _POLL_PERIOD_S * random.uniform(0.8, 1.2)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_s if poll_s + _POLL_PERIOD_S / 2 < remaining else remaining):
                    await event.wait()


router = APIRouter(tags=["results"])

FILES = "/v1/results/"
"""Path of result files, which need a signed link but no key."""
_POLL_PERIOD_S: Final = 25.0
"""Mean seconds between reads of a task that a client waits for, in case a notification is lost."""
_QUERY = re.compile(rb"(?<=://)([^\"?]*)\?[^\"]*")
"""Path and query of a link."""
_CONDITIONS = StaticFiles(check_dir=False)
"""Evaluates conditional requests; serves no files."""
_OPEN = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Range",
    "Access-Control-Expose-Headers": "Content-Length, Content-Range, ETag",
}


@router.get(
    "/v1/get_result",
    response_model=TaskResult,
    responses=errors(503)
    | {404: {"model": TaskResult, "description": "No such task"}, 304: {"description": "Unchanged"}},
)
async def get_result(
    request: Request,
    services: Deps,
    task_id: Annotated[str, Query(alias="id", max_length=64, description="The task's id")],
    wait: Annotated[
        float, Query(ge=0, le=60, allow_inf_nan=False, description="Seconds to wait for the task to end")
    ] = 0,
) -> Response:
    """Returns a task's status and, once `Ready`, its result with a new link. Needs no key: the id is enough."""
    task_id = task_id.lower()  # some clients write ids in capitals
    with services.tasks.watchers.acquire(task_id) if wait else nullcontext(False) as may_wait:
        *_, task = [view async for view in task_views(services, task_id, wait if may_wait else 0)]
    if task is None:
        return JSONResponse(not_found(task_id), status_code=404)

    body = await make_body(services, task, request)
    content = encode_body(body)
    # The ETag excludes the eta, which changes all the time.
    etag = _etag(content, services.settings.links.image_life_s)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if services.settings.service.basic_status_clients:
        headers["Vary"] = "User-Agent"
    if not task.status.terminal:
        headers["Retry-After"] = "1"
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if not task.status.terminal:
        content = await encode_with_eta(services, task, body)
    return Response(content, media_type="application/json", headers=headers)


@router.api_route(
    FILES + "{key:path}",
    methods=["GET", "HEAD"],
    response_class=FileResponse,
    responses=errors(403, 404),
    include_in_schema=False,
)
async def get_file(request: Request, services: Deps, key: str, se: str = "", sig: str = "") -> Response:
    """Serves a file of the local object store by a signed link: ranges, `If-None-Match` and `If-Modified-Since`."""
    if services.objects.root is None or not services.links.verify(key, se, sig, time.time()):
        raise ApiError(403, "link_expired", "This link is invalid or has expired; poll again for a new one", _OPEN)
    path = services.objects.root / key
    file_stat = await run_in_threadpool(_stat, path)
    if file_stat is None:
        raise ApiError(404, "result_expired", "This result has been deleted", _OPEN)
    headers = _OPEN | {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, max-age=600"}
    answer = _ResultFile(path, media_type=media_type(key), headers=headers, stat_result=file_stat)
    if not _CONDITIONS.is_not_modified(answer.headers, request.headers):
        return answer
    not_modified = NotModifiedResponse(answer.headers)
    not_modified.headers.update(_OPEN)
    return not_modified


def _stat(path: Path) -> os.stat_result | None:
    try:
        file_stat = path.stat()
    except OSError:
        return None
    return file_stat if stat.S_ISREG(file_stat.st_mode) else None


class _ResultFile(FileResponse):
    """Responds to invalid ranges by RFC 9110 with the API's errors; its base class responds in plain text."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []  # serves the whole file
        except RangeNotSatisfiable:
            headers = _OPEN | {"Content-Range": f"bytes */{file_size}"}
            raise HTTPException(416, f"No such range: the file has {file_size} bytes", headers) from None


@router.options(FILES + "{key:path}", include_in_schema=False)
async def preflight(key: str) -> Response:
    return Response(status_code=204, headers=_OPEN)


def _etag(content: bytes, life_s: float) -> str:
    """Returns a tag that changes with the body, and before a link of an earlier response expires.

    It excludes signatures, since some stores create a new one at each poll.
    """
    stable_content, links = _QUERY.subn(rb"\1", content)
    until = str(time.time() // (life_s / 2)) if links else ""
    return f'"{hashlib.sha256(stable_content + until.encode()).hexdigest()[:24]}"'


events_router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

_MAX_STREAM_S: Final = 300.0
"""Seconds until a stream ends and the client reconnects, so that a draining replica becomes idle."""
_STREAM: Final[dict[str, Any]] = {
    "description": "Events `status`, and at last `end`; `data` is a response of `get_result`",
    "content": {"text/event-stream": {}},
}
# Given only a model, FastAPI would describe errors as a stream.
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    code: {
        "description": response["description"],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{response['model'].__name__}"}}},
    }
    for code, response in errors(404, 503).items()
}


async def _require_task(
    services: Deps, task_id: Annotated[str, PathParameter(max_length=64, description="The task's id")]
) -> str:
    """Checks the task before the stream starts: afterwards, an error can't have a status."""
    if await services.tasks.store.reads.get(task_id) is None:
        raise task_not_found()
    return task_id


@events_router.get("/{task_id}/events", response_class=EventSourceResponse, responses=_ERRORS | {200: _STREAM})
async def stream_task_events(
    request: Request, services: Deps, task_id: Annotated[str, Depends(_require_task)]
) -> AsyncIterator[ServerSentEvent]:
    """Streams a task's status, progress and previews as they change, and its end. Needs no key: the id is enough."""
    last_fingerprint: object = None
    with services.tasks.watchers.acquire(task_id) as may_wait:
        async for task in task_views(services, task_id, _MAX_STREAM_S if may_wait else 0, changes=True):
            if task is None:
                return
            # Links are signed at each read, so a new link is not a change.
            fingerprint = task.status, task.progress, task.details, task.preview
            if fingerprint != last_fingerprint:
                last_fingerprint = fingerprint
                content = await encode_with_eta(services, task, await make_body(services, task, request))
                yield ServerSentEvent(event="end" if task.status.terminal else "status", raw_data=content.decode())
