"""`POST /v1/images/generations` and `/v1/images/edits`: synchronous image requests."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from deployments.contract.objects import UNREACHABLE
from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator
from serve_app.api.bodies import FilesRoute
from serve_app.api.hosts import public_base
from serve_app.api.openai import waiting
from serve_app.api.openai.schema import (
    FOR_GOOD,
    SERVER,
    Image,
    ImageEdit,
    ImageGeneration,
    ImagesResponse,
    Refusal,
    errors,
)
from serve_app.api.openai.translation import (
    FORM,
    MAX_FILES,
    OpenAIEndpoints,
    RequestFields,
    Translation,
    edits_pictures,
    is_form,
    makes_pictures,
    masked_by_alpha,
    paints_masked,
    read,
    validated,
)
from serve_app.api.openai.waiting import failure, job_of
from serve_app.api.routes.generate import IdempotencyKey
from serve_app.api.routes.schemas import answer_refusals, rate_limit_headers
from serve_app.api.services import Deps, Services
from serve_app.schemas import GenerationRequest
from serve_app.submission.errors import Invalid
from serve_app.tasks.limits import Refused
from serve_app.tasks.task import Status, Task

logger = logging.getLogger(__name__)

_GONE: Final = 499
"""The status for a client that is not there to read it."""
_FILE: Final = {"type": "string", "format": "binary"}
_FORM_FIELDS: Final[dict[str, Any]] = {
    "image": {"anyOf": [_FILE, {"type": "array", "items": _FILE, "maxItems": MAX_FILES}]},
    "mask": {**_FILE, "description": "A picture as large as the first; what is transparent in it is painted anew."},
}


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks, and how they are answered."""

    request: Request
    services: Services
    caller: Caller
    idempotency_key: str
    base: str


async def _call(request: Request, services: Deps, caller: Generator, idempotency_key: IdempotencyKey = None) -> Call:
    base = public_base(request, services.settings.service)
    return Call(request, services, caller, idempotency_key or "", base)


Asking = Annotated[Call, Depends(_call)]


def router(openai_endpoints: OpenAIEndpoints) -> APIRouter:
    routes = APIRouter(prefix="/v1/images", tags=["openai"], route_class=FilesRoute)
    described = errors(404, 408, 409, 413, 429, 500, 504)

    @routes.post("/generations", response_model=ImagesResponse, responses=described, openapi_extra=_generation_body())
    async def generate_images(call: Asking) -> Response:
        """Pictures from a prompt, as OpenAI's clients ask for them. Waits until they are ready."""
        sent = await read(call.request)
        asked = validated(ImageGeneration, sent.fields)
        served_endpoint = openai_endpoints.chosen(asked.model, makes_pictures, "make pictures from a prompt alone")
        return await _made(call, asked, sent, Translation(served_endpoint, served_endpoint.endpoint.request_type))

    @routes.post("/edits", response_model=ImagesResponse, responses=described, openapi_extra=_edit_body())
    async def edit_images(call: Asking) -> Response:
        """Pictures from others and a prompt, as OpenAI's clients ask for them. Waits until they are ready."""
        if not is_form(call.request):
            raise Invalid(["header", "Content-Type"], f"Content-Type should be {FORM}", "content_type")
        sent = await read(call.request)
        asked = validated(ImageEdit, sent.typed(sent.fields, ImageEdit))
        pictures, mask = sent.files.get("image", []), sent.file("mask")
        if not pictures:
            raise Invalid(["body", "image"], "Field required, as a file", "missing")
        if others := sorted(set(sent.files) - {"image", "mask"}):
            raise Invalid(["body", others[0]], "No file is taken here", "extra_forbidden")
        fits, doing = (edits_pictures, "edit pictures") if mask is None else (paints_masked, "take a mask")
        served_endpoint = openai_endpoints.chosen(asked.model, fits, doing)
        form = served_endpoint.endpoint.request_type
        translation = Translation(served_endpoint, form if mask is None else masked_by_alpha(form))
        translation.put_references(pictures, "image")
        translation.put("mask", mask, "mask")
        return await _made(call, asked, sent, translation)

    return routes


async def _made(call: Call, asked: ImageGeneration, sent: RequestFields, translation: Translation) -> Response:
    services, caller, served_endpoint = call.services, call.caller, translation.served_endpoint
    requests = _requests(asked, sent, translation)
    if len(requests) > 1 and call.idempotency_key:
        message = "An Idempotency-Key is for one picture: send one request for each, or leave the key out"
        raise Invalid(["header", "Idempotency-Key"], message, "idempotency_key")
    limits = services.tasks.limits
    try:
        with translation.telling():
            taken = await waiting.accepted(
                services,
                caller,
                served_endpoint,
                requests,
                base=call.base,
                idempotency_key=call.idempotency_key,
                traceparent=call.request.headers.get("traceparent", ""),
            )
    except Refused as refusal:
        raise answer_refusals(refusal, served_endpoint.name, services) from None
    # Whoever sends a key comes back with it for the same picture.
    keep = bool(call.idempotency_key)
    try:
        tasks = await waiting.ended(services, call.request, caller, waiting.ids_of(taken), keep=keep)
    except waiting.ClientGone:
        return Response(status_code=_GONE)
    left = taken[-1].requests_left
    headers = {} if left is None else rate_limit_headers(limits, left)
    return await _answer(call, tasks, headers, as_links=asked.response_format == "url")


def _requests(asked: ImageGeneration, sent: RequestFields, translation: Translation) -> list[GenerationRequest]:
    """One for each picture; with a seed, those that follow it."""
    translation.put_common(asked)
    translation.put("output_format", asked.output_format or "png", "output_format")
    _put_size(asked.size, translation)
    if asked.background == "transparent":
        if asked.output_format not in (None, "png"):
            raise Invalid(["body", "background"], "Transparent pictures are PNG", "value_error")
        translation.put("transparent_bg", True, "background")
    translation.put_further(asked.further, sent)
    first, count = translation.request(), asked.n or 1
    seed = getattr(first, "seed", None)
    if seed is None:
        return [first] * count
    return [translation.request(seed=seed + number) for number in range(count)]


def _put_size(size: str | None, translation: Translation) -> None:
    if size in (None, "auto"):
        return
    fields = translation.form.model_fields
    if not {"width", "height"} <= set(fields):
        instead = "; aspect_ratio chooses the ratio" if "aspect_ratio" in fields else ""
        message = f"{translation.served_endpoint.name} takes no size, leave it to auto{instead}"
        raise Invalid(["body", "size"], message, "value_error")
    width, height = size.split("x")
    translation.put("width", int(width), "size")
    translation.put("height", int(height), "size")


async def _answer(call: Call, tasks: Sequence[Task], headers: dict[str, str], *, as_links: bool) -> Response:
    """Those that are ready, in their order. Raises Refusal where none is."""
    ready = [task for task in tasks if task.status is Status.READY and task.result]
    if not ready:
        raise _refusal(tasks[0])
    if not as_links:
        files = await asyncio.gather(*(_file(call.services, task) for task in ready))
        content = await asyncio.to_thread(_with_files, _pictures(ready), files)
        return Response(content, media_type="application/json", headers=headers)
    answer = _pictures(ready)
    for picture, task in zip(answer.data, ready, strict=True):
        shown = await call.services.presenter.body(task, call.base)
        picture.url = shown["result"]["sample"]
    return JSONResponse(answer.model_dump(exclude_none=True), headers=headers)


def _refusal(task: Task) -> Refusal:
    code, message = failure(task)
    if code == "moderation_blocked":
        return Refusal(400, message, code, kind="image_generation_user_error")
    return Refusal(500, f"{message} (task {task.id})", code, kind=SERVER, headers=FOR_GOOD)


def _pictures(ready: Sequence[Task]) -> ImagesResponse:
    data = [Image(id=task.id, revised_prompt=_revised(task)) for task in ready]
    written = PurePosixPath((ready[0].result or {})["key"]).suffix.removeprefix(".")
    return ImagesResponse(created=int(time.time()), data=data, output_format=written)


def _revised(task: Task) -> str | None:
    made_of, job = (task.result or {}).get("prompt"), job_of(task)
    return made_of if job is not None and made_of != job.prompt else None


async def _file(services: Services, task: Task) -> bytes:
    try:
        return await services.objects.get((task.result or {})["key"])
    except FileNotFoundError:
        raise Refusal(404, f"The picture of task {task.id} is no longer kept", "not_found") from None
    except UNREACHABLE as problem:
        logger.warning("object store out of reach: %s: %.300s", type(problem).__name__, problem)
        message = f"The object store is out of reach; the picture is at GET /v1/get_result?id={task.id}"
        raise Refusal(503, message, "service_unavailable", kind=SERVER, headers=FOR_GOOD) from None


def _with_files(answer: ImagesResponse, files: Sequence[bytes]) -> bytes:
    """The answer as JSON, put together by hand: pictures may be large, and encoding JSON would hold up all others."""
    told = answer.model_dump(exclude_none=True)
    data = [
        b'{"b64_json":"' + base64.b64encode(file) + b'",' + json.dumps(picture).encode().removeprefix(b"{")
        for picture, file in zip(told.pop("data"), files, strict=True)
    ]
    return b'{"data":[' + b",".join(data) + b"]," + json.dumps(told).encode().removeprefix(b"{")


def _generation_body() -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(ImageGeneration)}}}}


def _edit_body() -> dict[str, Any]:
    schema = _schema(ImageEdit)
    schema["properties"] |= _FORM_FIELDS
    schema["required"] = [*schema["required"], "image"]
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}


def _schema(form: type[ImageGeneration]) -> dict[str, Any]:
    return form.model_json_schema()
