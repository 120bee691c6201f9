"""Uploads: large inputs, stored by signed addresses ahead of the request that names them."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect, HTTPConnection

from deployments.contract.job import media_type
from serve_app.api.auth import Generator
from serve_app.api.bodies import JsonRoute
from serve_app.api.errors import ApiError
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import PROJECT_CLOSED, errors
from serve_app.api.services import Deps, Services
from serve_app.inputs.links import PREFIXES
from serve_app.inputs.settings import IMAGES, VIDEOS
from serve_app.submission.input_storage import UPLOAD, upload_key

router = APIRouter(prefix="/v1/uploads", tags=["uploads"], route_class=JsonRoute)

_LIFE_S: Final = 900
"""Of an address."""
_CLOSE: Final = {"Connection": "close"}
"""What is left of the body stays unread, so the connection can't be used again."""


class CreateUploadRequest(BaseModel):
    content_type: Literal["image/jpeg", "image/png", "image/webp", "video/mp4"]


class Upload(BaseModel):
    upload: str = Field(description="To be sent in place of an image or a video, by keys of the same project")
    url: str = Field(description="Takes the file by one PUT, within 15 minutes, and needs no key")
    headers: dict[str, str] = Field(description="Of the PUT")
    max_bytes: int
    expires: float = Field(description="When the file goes, epoch seconds")


@router.post("", responses=errors(403, 429, 503))
async def create_upload(request: Request, services: Deps, caller: Generator, body: CreateUploadRequest) -> Upload:
    """An address for a large image or video; what is stored there can be sent by its reference instead of as base64."""
    if caller.project.closed:
        raise ApiError(403, "project_closed", PROJECT_CLOSED)
    await services.tasks.count_request(caller.id)
    upload_id, extension = str(uuid.uuid4()), body.content_type.rpartition("/")[2]
    key, objects = upload_key(upload_id, extension), services.objects
    expires = await services.tasks.reserve(upload_id, caller.project.id)
    if objects.can_sign:
        url = await objects.sign(key, timedelta(seconds=_LIFE_S), "PUT")
    else:
        base = public_base(request, services.settings.service)
        url = base + services.links.sign(key, _LIFE_S, time.time(), exact=True, method="PUT")
    return Upload(
        upload=f"{UPLOAD}{upload_id}.{extension}",
        url=url,
        headers={"Content-Type": body.content_type},
        max_bytes=_max_bytes(key),
        expires=expires,
    )


@router.put("/{key:path}", status_code=204, include_in_schema=False)
async def store_upload(request: Request, services: Deps, key: str) -> None:
    """Where the object store has no addresses of its own."""
    check_signature(services, request)
    try:
        await services.objects.put_stream(key, _within_limit(request.stream(), _max_bytes(key)))
    except ClientDisconnect:
        raise HTTPException(400, "The body ended early") from None  # that nobody hears


def check_signature(services: Services, request: HTTPConnection) -> None:
    """Raises ApiError."""
    key = request.scope["path"].removeprefix(PREFIXES["PUT"])
    se, sig = (request.query_params.get(name, "") for name in ("se", "sig"))
    if not services.links.verify(key, se, sig, time.time(), "PUT"):
        raise ApiError(403, "link_expired", "This address is not valid or has expired; create another upload")


async def _within_limit(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise ApiError(413, "body_too_large", f"The file is too large: at most {max_bytes} bytes", _CLOSE)
        yield chunk


def _max_bytes(key: str) -> int:
    return (VIDEOS if media_type(key).startswith("video/") else IMAGES).max_bytes
