"""The routes `POST /v1/images/generations` and `/v1/images/edits`: synchronous image requests."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

import pybase64
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from deployments.contract.objects import UNREACHABLE
from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator
from serve_app.api.bodies import FilesRoute
from serve_app.api.hosts import public_base
from serve_app.api.openai import waiting
from serve_app.api.openai.schema import (
    NO_RETRY,
    SERVER,
    ImageEdit,
    ImageGeneration,
    ImageReference,
    ImagesResponse,
    OpenAIImage,
    Refusal,
    errors,
)
from serve_app.api.openai.translation import (
    FORM,
    MAX_FILES,
    OpenAIEndpoints,
    RequestFields,
    Translation,
    accepts_mask,
    edits_images,
    image_reference,
    makes_images,
    read,
    validate,
    with_alpha_masks,
)
from serve_app.api.openai.waiting import failure
from serve_app.api.routes.generate import IdempotencyKey
from serve_app.api.routes.schemas import rate_limit_headers, rejection_error
from serve_app.api.services import Deps, Services
from serve_app.schemas import GenerationRequest
from serve_app.submission.errors import Invalid
from serve_app.tasks.rejections import TaskRejected
from serve_app.tasks.task import Status, Task

logger = logging.getLogger(__name__)

_CLIENT_CLOSED_REQUEST: Final = 499
"""The status for a disconnected client, as in nginx."""
_PIECE_BYTES: Final = 3 * 2**16
"""Bytes of a file to encode at a time; a multiple of three."""
_FILE: Final = {"type": "string", "format": "binary"}
_FILES: Final = ("image", "images", "mask")
_MASK: Final = "A mask of the size of the first image. Its transparent parts are repainted."
_REFERENCE: Final = {"anyOf": [{"type": "string", "minLength": 1}, ImageReference.model_json_schema()]}


@dataclass(frozen=True, slots=True)
class ImageCall:
    request: Request
    services: Services
    caller: Caller
    idempotency_key: str
    base: str


async def _call(
    request: Request, services: Deps, caller: Generator, idempotency_key: IdempotencyKey = None
) -> ImageCall:
    base = public_base(request, services.settings.service)
    return ImageCall(request, services, caller, idempotency_key or "", base)


Call = Annotated[ImageCall, Depends(_call)]


def router(openai_endpoints: OpenAIEndpoints) -> APIRouter:
    routes = APIRouter(prefix="/v1/images", tags=["openai"], route_class=FilesRoute)
    error_responses = errors(404, 408, 409, 413, 429, 500, 504)

    content = {"application/json": {"schema": ImageGeneration.model_json_schema()}}
    generation = {"requestBody": {"required": True, "content": content}}

    @routes.post("/generations", response_model=ImagesResponse, responses=error_responses, openapi_extra=generation)
    async def generate_images(call: Call) -> Response:
        """Generates images from a prompt, and responds when they are ready."""
        fields = await read(call.request)
        fields.check_files(ImageGeneration, ())
        request = validate(ImageGeneration, fields.parse_texts(fields.fields, ImageGeneration))
        served_endpoint = openai_endpoints.choose(request.model, makes_images, "make images from a prompt alone")
        return await _generate(
            call, request, fields, Translation(served_endpoint, served_endpoint.endpoint.request_type)
        )

    @routes.post("/edits", response_model=ImagesResponse, responses=error_responses, openapi_extra=_edit_body())
    async def edit_images(call: Call) -> Response:
        """Edits images by a prompt, and responds when the results are ready."""
        fields = await read(call.request)
        fields.check_files(ImageEdit, _FILES)
        texts = {name: value for name, value in fields.fields.items() if name not in _FILES}
        request = validate(ImageEdit, fields.parse_texts(texts, ImageEdit))
        source, images, mask = _images_to_edit(fields)
        if mask is None:
            served_endpoint = openai_endpoints.choose(request.model, edits_images, "edit images")
        else:
            served_endpoint = openai_endpoints.choose(request.model, accepts_mask, "take a mask")
        form = served_endpoint.endpoint.request_type
        translation = Translation(served_endpoint, form if mask is None else with_alpha_masks(form))
        translation.set_references(images, source)
        translation.set("mask", mask, "mask")
        return await _generate(call, request, fields, translation)

    return routes


def _images_to_edit(fields: RequestFields) -> tuple[str, list[str], str | None]:
    """Returns the field that holds the images, the images, and the mask. Raises Invalid."""
    sources = [name for name in ("image", "images") if fields.files.get(name) or fields.fields.get(name)]
    if not sources:
        raise Invalid(["body", "image"], "Field required: files of a form, or images in JSON", "missing")
    if len(sources) > 1:
        raise Invalid(["body", "images"], "Sent twice: image is the same field", "sent_twice")
    (source,) = sources
    if fields.is_form:
        return source, fields.files[source], fields.file("mask")
    value, mask = fields.fields[source], fields.fields.get("mask")
    if isinstance(value, list):
        images = [image_reference(each, source, str(number)) for number, each in enumerate(value)]
    else:
        images = [image_reference(value, source)]
    return source, images, None if mask is None else image_reference(mask, "mask")


async def _generate(
    call: ImageCall, request: ImageGeneration, fields: RequestFields, translation: Translation
) -> Response:
    services, caller, served_endpoint = call.services, call.caller, translation.served_endpoint
    requests = _requests(request, fields, translation)
    if len(requests) > 1 and call.idempotency_key:
        message = "An Idempotency-Key is for one image: send one request for each, or leave the key out"
        raise Invalid(["header", "Idempotency-Key"], message, "idempotency_key")
    limits = services.tasks.store.limits
    try:
        with translation.translate_errors():
            submissions = await waiting.accept_all(
                services,
                caller,
                served_endpoint,
                requests,
                base=call.base,
                idempotency_key=call.idempotency_key,
                traceparent=call.request.headers.get("traceparent", ""),
            )
    except TaskRejected as refusal:
        raise rejection_error(refusal, served_endpoint.name, services) from None
    # A client that sends a key may repeat the request to get the same image.
    keep = bool(call.idempotency_key)
    try:
        tasks = await waiting.wait_for_end(services, call.request, caller, waiting.task_ids(submissions), keep=keep)
    except waiting.ClientGone:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    headers = rate_limit_headers(limits, submissions[-1].requests_left)
    return await _answer(call, tasks, headers, as_links=request.response_format == "url")


def _requests(request: ImageGeneration, fields: RequestFields, translation: Translation) -> list[GenerationRequest]:
    """Returns a request for each image, with consecutive seeds if the client sent one."""
    translation.set_common(request)
    translation.set("output_format", request.output_format or "png", "output_format")
    _set_size(request.size, translation)
    if request.background == "transparent":
        if request.output_format not in (None, "png"):
            raise Invalid(["body", "background"], "Transparent images are PNG", "value_error")
        translation.set("transparent_bg", True, "background")
    translation.set_further(request.further, fields)
    first, count = translation.request(), request.n or 1
    seed = getattr(first, "seed", None)
    if seed is None:
        return [first] * count
    return [translation.request(seed=seed + number) for number in range(count)]


def _set_size(size: str | None, translation: Translation) -> None:
    if size in (None, "auto"):
        return
    fields = translation.form.model_fields
    if not {"width", "height"} <= set(fields):
        instead = "; aspect_ratio chooses the ratio" if "aspect_ratio" in fields else ""
        message = f"{translation.served_endpoint.name} takes no size, leave it to auto{instead}"
        raise Invalid(["body", "size"], message, "value_error")
    width, height = size.split("x")
    translation.set("width", int(width), "size")
    translation.set("height", int(height), "size")


async def _answer(call: ImageCall, tasks: Sequence[Task], headers: dict[str, str], *, as_links: bool) -> Response:
    """Responds with the images that are ready, in order. Raises Refusal if none is."""
    ready = [task for task in tasks if task.status is Status.READY and task.result]
    if not ready:
        code, message = failure(tasks[0])
        if code == "moderation_blocked":
            raise Refusal(400, message, code, error_type="image_generation_user_error")
        raise Refusal(500, f"{message} (task {tasks[0].id})", code, error_type=SERVER, headers=NO_RETRY)
    if not as_links:
        files = await asyncio.gather(*(_file(call.services, task) for task in ready))
        pieces = list(_pieces(_images(ready), files))
        length = sum(len(piece) if isinstance(piece, bytes) else 4 * -(-piece.nbytes // 3) for piece in pieces)
        headers |= {"Content-Length": str(length)}
        return StreamingResponse(_encode(pieces), media_type="application/json", headers=headers)
    answer = _images(ready)
    for image, task in zip(answer.data, ready, strict=True):
        view = await call.services.tasks.serializer.body(task, call.base)
        image.url = view["result"]["sample"]
    return JSONResponse(answer.model_dump(exclude_none=True), headers=headers)


def _images(ready: Sequence[Task]) -> ImagesResponse:
    results = [(task, task.result) for task in ready if task.result]
    data = [
        OpenAIImage(id=task.id, revised_prompt=None if task.prompt in (None, result.prompt) else result.prompt)
        for task, result in results
    ]
    output_format = PurePosixPath(results[0][1].key).suffix.removeprefix(".")
    return ImagesResponse(created=int(time.time()), data=data, output_format=output_format)


async def _file(services: Services, task: Task) -> bytes:
    assert task.result is not None
    try:
        return await services.objects.get(task.result.key)
    except FileNotFoundError:
        raise Refusal(404, f"The image of task {task.id} has been deleted", "not_found") from None
    except UNREACHABLE as problem:
        logger.warning("object store out of reach: %s: %.300s", type(problem).__name__, problem)
        message = f"The object store is out of reach; the image is at GET /v1/get_result?id={task.id}"
        raise Refusal(503, message, "service_unavailable", error_type=SERVER, headers=NO_RETRY) from None


def _pieces(answer: ImagesResponse, files: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """Yields the response as JSON with unencoded files: encoding large ones at once would block other requests."""
    body = answer.model_dump(exclude_none=True)
    opening = b'{"data":['
    for image, file in zip(body.pop("data"), files, strict=True):
        yield opening + b'{"b64_json":"'
        yield from (memoryview(file)[start : start + _PIECE_BYTES] for start in range(0, len(file), _PIECE_BYTES))
        opening = b'",' + json.dumps(image).encode().removeprefix(b"{") + b","
    yield opening.removesuffix(b",") + b"]," + json.dumps(body).encode().removeprefix(b"{")


async def _encode(pieces: Iterable[bytes | memoryview]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece if isinstance(piece, bytes) else pybase64.b64encode(piece)


def _edit_body() -> dict[str, Any]:
    form, json_body = {"schema": _edit_schema("image", _FILE)}, {"schema": _edit_schema("images", _REFERENCE)}
    return {"requestBody": {"required": True, "content": {FORM: form, "application/json": json_body}}}


def _edit_schema(source: str, image: dict[str, Any]) -> dict[str, Any]:
    schema = ImageEdit.model_json_schema()
    schema["properties"] |= {
        source: {"anyOf": [image, {"type": "array", "items": image, "maxItems": MAX_FILES}]},
        "mask": {**image, "description": _MASK},
    }
    schema["required"] = [*schema["required"], source]
    return schema
