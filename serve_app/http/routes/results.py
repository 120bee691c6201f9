"""Polling, and the result files themselves."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import MalformedRangeHeader, RangeNotSatisfiable
from starlette.staticfiles import NotModifiedResponse, StaticFiles

from deployments.contract.media_type import media_type
from serve_app.http import task_view
from serve_app.http.errors import ApiError
from serve_app.http.routes.schemas import TaskResult, errors
from serve_app.http.services import Deps
from serve_app.tasks import presentation

router = APIRouter(tags=["results"])

FILES = "/v1/results/"
"""Where result files are, for everyone who has a link."""
_RECHECK_S = 2.0
"""The completion channel may lose messages, so a waiting poll also looks by itself."""
_QUERY = re.compile(rb"(?<=://)([^\"?]*)\?[^\"]*")
"""Of a link, with what stands in front of it."""
_CONDITIONS = StaticFiles(check_dir=False)
"""Knows when a file is unchanged; serves none."""
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
    """A task's status and, once it is `Ready`, its result with a fresh signed link. Needs no key: the id is enough."""
    task_id = task_id.lower()  # some clients write ids in capitals
    with services.watchers.one_more(task_id) if wait else nullcontext(False) as may_wait:
        *_, task = [look async for look in task_view.looks(services, task_id, _RECHECK_S, wait if may_wait else 0)]
    if task is None:
        return JSONResponse(presentation.not_found(task_id), status_code=404)

    content = await task_view.encoded(services, task, request)
    headers = {"ETag": _etag(content, services.settings.links.image_life_s), "Cache-Control": "private, no-cache"}
    if services.settings.service.basic_status_clients:
        headers["Vary"] = "User-Agent"
    if not task.status.terminal:
        headers["Retry-After"] = "1"
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


@router.api_route(
    FILES + "{key:path}",
    methods=["GET", "HEAD"],
    response_class=FileResponse,
    responses=errors(403, 404),
    include_in_schema=False,
)
async def get_file(request: Request, services: Deps, key: str, se: str = "", sig: str = "") -> Response:
    """A result file of the local object store, by a signed link. Ranges, `If-None-Match` and `If-Modified-Since`."""
    if services.objects.root is None or not services.links.verify(key, se, sig, time.time()):
        raise ApiError(403, "link_expired", "This link is not valid or has expired; poll again for a fresh one", _OPEN)
    path = services.objects.root / key
    found = await run_in_threadpool(_stat, path)
    if found is None:
        raise ApiError(404, "result_expired", "This result is no longer kept", _OPEN)
    headers = _OPEN | {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, max-age=600"}
    answer = _ResultFile(path, media_type=media_type(key), headers=headers, stat_result=found)
    if not _CONDITIONS.is_not_modified(answer.headers, request.headers):
        return answer
    unchanged = NotModifiedResponse(answer.headers)
    unchanged.headers.update(_OPEN)
    return unchanged


def _stat(path: Path) -> os.stat_result | None:
    """None where there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


class _ResultFile(FileResponse):
    """Answers ranges it can't serve as the contract and RFC 9110 have it, where its base answers in plain text."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []  # as if none was asked for: the whole file
        except RangeNotSatisfiable:
            headers = _OPEN | {"Content-Range": f"bytes */{file_size}"}
            raise HTTPException(416, f"No such range: the file has {file_size} bytes", headers) from None


@router.options(FILES + "{key:path}", include_in_schema=False)
async def preflight(key: str) -> Response:
    return Response(status_code=204, headers=_OPEN)


def _etag(content: bytes, life_s: float) -> str:
    """Changes with whatever a client can see, but for signatures of links, which some stores make anew at each poll;
    and before a link of an earlier answer ends."""
    seen, links = _QUERY.subn(rb"\1", content)
    until = str(time.time() // (life_s / 2)) if links else ""
    return f'"{hashlib.sha256(seen + until.encode()).hexdigest()[:24]}"'
