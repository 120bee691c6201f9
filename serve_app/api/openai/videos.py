"""The routes `/v1/videos`: video tasks in OpenAI's form, no matter how they were submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import RedirectResponse

from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator, TaskReader
from serve_app.api.bodies import FilesRoute
from serve_app.api.hosts import public_base
from serve_app.api.openai import waiting
from serve_app.api.openai.schema import (
    DeletedVideo,
    ImageReference,
    Refusal,
    Status,
    Video,
    VideoCreation,
    VideoFailure,
    VideoList,
    errors,
)
from serve_app.api.openai.translation import (
    FORM,
    OpenAIEndpoints,
    RequestFields,
    Translation,
    image_reference,
    makes_videos,
    read,
    validate,
)
from serve_app.api.openai.waiting import failure
from serve_app.api.routes.generate import IdempotencyKey, submit_body
from serve_app.api.routes.schemas import rate_limit_headers
from serve_app.api.services import Deps, Services
from serve_app.inputs.geometry import RATIOS, VIDEO_AREAS, video_size
from serve_app.schemas.video import AspectRatio, ImageToVideoRequest, TextToVideoRequest
from serve_app.submission.errors import Invalid
from serve_app.submission.prepare import ServedEndpoint
from serve_app.tasks import task as tasks
from serve_app.tasks.scripts import CancelOutcome

_AUTO: Final = "auto"
_REFERENCE: Final = "input_reference"
_STATUSES: Final[Mapping[tasks.Status, Status]] = {
    tasks.Status.PENDING: "queued",
    tasks.Status.REASONING: "in_progress",
    tasks.Status.GENERATING: "in_progress",
    tasks.Status.READY: "completed",
}
"""Every other status is `failed`."""

VideoId = Annotated[str, Path(max_length=64, description="Id of the video's task")]


def _sizes() -> Iterator[tuple[str, tuple[str, str]]]:
    for resolution, area in VIDEO_AREAS.items():
        for ratio in get_args(AspectRatio):
            if ratio != _AUTO:
                size = video_size(RATIOS[ratio], area)
                yield f"{size.width}x{size.height}", (resolution, ratio)


_SIZES: Final[Mapping[str, tuple[str, str]]] = dict(_sizes())
"""Resolution and ratio by exact size."""
_COMMON_SIZES: Final[Mapping[str, tuple[str, str]]] = {
    "1280x720": ("hd", "16:9"),
    "720x1280": ("hd", "9:16"),
    "1920x1080": ("fhd", "16:9"),
    "1080x1920": ("fhd", "9:16"),
}
"""Resolution and ratio by common name. The exact size is in `size` of the video."""


def router(openai_endpoints: OpenAIEndpoints) -> APIRouter:
    routes = APIRouter(prefix="/v1/videos", tags=["openai"], route_class=FilesRoute)
    endpoints = [served_endpoint.name for served_endpoint in openai_endpoints.all() if makes_videos(served_endpoint)]

    @routes.post("", responses=errors(404, 408, 409, 413, 429), openapi_extra=_creation_body())
    async def create_video(
        request: Request,
        response: Response,
        services: Deps,
        caller: Generator,
        idempotency_key: IdempotencyKey = None,
    ) -> Video:
        """Submits a video from a prompt, or from an image and a prompt."""
        fields = await read(request)
        fields.check_files(VideoCreation, (_REFERENCE,))
        creation = validate(VideoCreation, fields.parse_texts(fields.fields, VideoCreation))
        served_endpoint = openai_endpoints.choose(creation.model, makes_videos, "make videos")
        translation = _translation(served_endpoint, creation, fields)
        body = translation.request()
        with translation.translate_errors():
            submission = await submit_body(services, caller, served_endpoint, body, request, idempotency_key)
        response.headers.update(rate_limit_headers(services.tasks.store.limits, submission.requests_left))
        (task_id,) = waiting.task_ids([submission])
        return _view(services, await _find_video(services, caller, endpoints, task_id))

    @routes.get("", responses=errors())
    async def list_videos(
        services: Deps,
        caller: TaskReader,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        after: Annotated[str | None, Query(max_length=64, description="`last_id` of the previous page")] = None,
        order: Annotated[Literal["desc"], Query(description="Newest first; no other order is supported")] = "desc",
    ) -> VideoList:
        """Lists the videos of the key's project, from all routes."""
        cursor = None
        if after is not None:
            last = await _find_video(services, caller, endpoints, after)
            cursor = f"{round(last.created * 1000)}-{last.id}"
        page, following = await services.tasks.store.reads.list_tasks(
            caller.project.id, limit=limit, cursor=cursor, endpoints=endpoints
        )
        while not page and following is not None:
            # A page scans a limited number of tasks, and clients take an empty page for the last.
            page, following = await services.tasks.store.reads.list_tasks(
                caller.project.id, limit=limit, cursor=following, endpoints=endpoints
            )
        return VideoList(
            data=[_view(services, task) for task in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=following is not None,
        )

    @routes.get("/{task_id}", responses=errors(404))
    async def get_video(services: Deps, caller: TaskReader, task_id: VideoId) -> Video:
        """Returns a video of the key's project with its status and progress."""
        return _view(services, await _find_video(services, caller, endpoints, task_id))

    @routes.get("/{task_id}/content", status_code=302, response_class=RedirectResponse, responses=errors(404))
    async def get_video_content(
        request: Request,
        services: Deps,
        caller: TaskReader,
        task_id: VideoId,
        variant: Annotated[Literal["video"], Query(description="No other variant is supported")] = "video",
    ) -> Response:
        """Redirects to the video's file by a link that needs no key."""
        task = await _find_video(services, caller, endpoints, task_id)
        if task.status is not tasks.Status.READY:
            reason = failure(task)[1] if task.status.terminal else "it is not finished"
            raise Refusal(400, f"There is no video: {reason}", "video_not_ready")
        view = await services.tasks.serializer.body(task, public_base(request, services.settings.service))
        return RedirectResponse(view["result"]["sample"], 302, {"Cache-Control": "no-store"})

    @routes.delete("/{task_id}", responses=errors(404, 409))
    async def delete_video(services: Deps, caller: Generator, task_id: VideoId) -> DeletedVideo:
        """Cancels an unfinished video at no cost. A finished one is deleted at `expires_at`."""
        task = await _find_video(services, caller, endpoints, task_id)
        if await services.tasks.store.cancel(task.id, caller.project.id) is CancelOutcome.ENDED:
            raise Refusal(409, "The video is finished; it is deleted at expires_at", "conflict")
        return DeletedVideo(id=task.id)

    return routes


def _reference(creation: VideoCreation, fields: RequestFields) -> str | None:
    """Returns the first frame: a file, or an image of the JSON body."""
    reference = creation.further.get(_REFERENCE)
    if (file := fields.file(_REFERENCE)) is not None:
        return file
    if reference is None and (url := creation.further.get(f"{_REFERENCE}[image_url]")):
        reference = {"image_url": url}
    return None if reference is None else image_reference(reference, _REFERENCE)


def _translation(served_endpoint: ServedEndpoint, creation: VideoCreation, fields: RequestFields) -> Translation:
    reference = _reference(creation, fields)
    form, mode = (TextToVideoRequest, "t2v") if reference is None else (ImageToVideoRequest, "i2v")
    translation = Translation(served_endpoint, form)
    translation.set("mode", mode, _REFERENCE)
    translation.set("keyframes", reference, _REFERENCE)
    translation.set_common(creation)
    translation.set("duration", creation.seconds, "seconds")
    if creation.size not in (None, _AUTO):
        sizes = _SIZES | _COMMON_SIZES
        if creation.size not in sizes:
            raise Invalid(["body", "size"], f"Input should be one of {', '.join(sizes)}, or auto", "value_error")
        resolution, ratio = sizes[creation.size]
        translation.set("resolution", resolution, "size")
        translation.set("aspect_ratio", ratio, "size")
    own = {name: value for name, value in creation.further.items() if name.partition("[")[0] != _REFERENCE}
    translation.set_further(own, fields)
    return translation


async def _find_video(services: Services, caller: Caller, endpoints: list[str], task_id: str) -> tasks.Task:
    """Returns a video of the caller's project. Raises Refusal."""
    task = await services.tasks.store.reads.get(task_id)
    if task is None or task.project != caller.project.id or task.endpoint not in endpoints:
        raise Refusal(404, "Video not found", "not_found")
    return task


def _view(services: Services, task: tasks.Task) -> Video:
    payload = task.read_payload()
    request = payload.request if payload else None
    status: Status = _STATUSES.get(task.status, "failed")
    ended_at = task.finished
    size = _AUTO if request is None or request.open_ratio else f"{request.width}x{request.height}"
    problem = VideoFailure(**dict(zip(("code", "message"), failure(task), strict=True))) if status == "failed" else None
    return Video(
        id=task.id,
        model=task.endpoint,
        status=status,
        progress=int(100 * (task.progress or 0)),
        created_at=int(task.created),
        completed_at=None if ended_at is None else int(ended_at),
        expires_at=None if ended_at is None else int(ended_at + services.tasks.store.limits.retention_s),
        prompt=request.prompt if request else None,
        seconds=str(request.seconds) if request and request.video else "",
        size=size,
        error=problem,
    )


def _creation_body() -> dict[str, Any]:
    schema = VideoCreation.model_json_schema()
    file = {"type": "string", "format": "binary", "description": "The first frame."}
    form_schema = {**schema, "properties": {**schema["properties"], _REFERENCE: file}}
    address = {**ImageReference.model_json_schema(), "description": "The first frame."}
    json_schema = {**schema, "properties": {**schema["properties"], _REFERENCE: address}}
    content = {"application/json": {"schema": json_schema}, FORM: {"schema": form_schema}}
    return {"requestBody": {"required": True, "content": content}}
