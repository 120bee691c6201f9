"""Uploads: large inputs that clients store by signed URLs before the request that names them."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Final, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect, HTTPConnection

from serve_app.api.auth import Generator
from serve_app.api.bodies import JsonRoute
from serve_app.api.errors import ApiError
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import PROJECT_CLOSED, errors, rejection_error
from serve_app.api.services import Deps, Services
from serve_app.inputs.links import PREFIXES
from serve_app.inputs.settings import IMAGES, VIDEOS
from serve_app.submission.errors import Invalid
from serve_app.submission.input_storage import UPLOAD, upload_key
from serve_app.tasks.rejections import TaskRejected

router = APIRouter(prefix="/v1/uploads", tags=["uploads"], route_class=JsonRoute)

_LIFE_S: Final = 900
"""Seconds for which a URL is valid."""
_CLOSE: Final = {"Connection": "close"}
"""Header of a response to a body that is not read to its end: the connection can't be reused."""


class CreateUploadRequest(BaseModel):
    content_type: Literal["image/jpeg", "image/png", "image/webp", "video/mp4"]
    size: int | None = Field(default=None, ge=1, description="Bytes of the file, if known. The URL accepts no more")


class Upload(BaseModel):
    upload: str = Field(description="Reference to send in place of an image or video, with a key of the same project")
    url: str = Field(description="Takes the file by one PUT, within 15 minutes, and needs no key")
    headers: dict[str, str] = Field(description="Headers of the PUT")
    max_bytes: int
    expires: float = Field(description="Time at which the file is deleted, epoch seconds")


@router.post("", responses=errors(402, 403, 429, 503))
async def create_upload(request: Request, services: Deps, caller: Generator, body: CreateUploadRequest) -> Upload:
    """Creates a URL for a large image or video. Requests name the stored file by its reference.

    The URL is the service's, not the object store's, which would accept a file of any size.
    """
    if caller.project.closed:
        raise ApiError(403, "project_closed", PROJECT_CLOSED)
    limit = (VIDEOS if body.content_type.startswith("video/") else IMAGES).max_bytes
    if body.size is not None and body.size > limit:
        raise Invalid(["body", "size"], f"at most {limit} bytes for {body.content_type}", "less_than_equal")
    upload_id, max_bytes = str(uuid.uuid4()), body.size or limit
    key = upload_key(upload_id, body.content_type.rpartition("/")[2])
    try:
        await services.tasks.store.consume_rate_limit(caller.id)
        expires = await services.tasks.store.reservations.reserve_upload(
            upload_id, caller.project.id, caller.organization, max_bytes, services.catalog.min_price
        )
    except TaskRejected as refusal:
        raise rejection_error(refusal, "uploads", services) from None
    base = public_base(request, services.settings.service)
    signed = services.links.sign(f"{key}/{max_bytes}", _LIFE_S, time.time(), exact=True, method="PUT")
    return Upload(
        upload=f"{UPLOAD}{upload_id}.{key.rpartition('.')[2]}",
        url=base + signed,
        headers={"Content-Type": body.content_type},
        max_bytes=max_bytes,
        expires=expires,
    )


@router.put("/{key:path}", status_code=204, include_in_schema=False)  # URLs of 0.2.0, until they expire
@router.put("/{key:path}/{max_bytes:int}", status_code=204, include_in_schema=False)
async def store_upload(request: Request, services: Deps, key: str, max_bytes: int = IMAGES.max_bytes) -> None:
    """Stores the file of an upload once."""
    check_signature(services, request)
    upload_id = key.split("/")[1]
    project = await services.tasks.store.reservations.begin_upload(upload_id)
    if project is None:
        raise ApiError(
            409, "conflict", "This address takes a file now, or has taken one; create another upload", _CLOSE
        )
    body = _CountedBody(request.stream(), max_bytes)
    try:
        await services.objects.put_stream(key, body.chunks())
    except BaseException as problem:
        await services.tasks.store.reservations.abort_upload(upload_id)
        if isinstance(problem, ClientDisconnect):
            raise HTTPException(400, "The body ended early") from None  # the client is gone
        raise
    await services.tasks.store.reservations.end_upload(upload_id, project, body.size)


def check_signature(services: Services, request: HTTPConnection) -> None:
    """Raises ApiError if the signature is not valid."""
    key = request.scope["path"].removeprefix(PREFIXES["PUT"])
    se, sig = (request.query_params.get(name, "") for name in ("se", "sig"))
    if not services.links.verify(key, se, sig, time.time(), "PUT"):
        raise ApiError(403, "link_expired", "This address is not valid or has expired; create another upload")


class _CountedBody:
    def __init__(self, stream: AsyncIterator[bytes], max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self.size = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body. Raises ApiError if it is too large."""
        async for chunk in self._stream:
            self.size += len(chunk)
            if self.size > self._max_bytes:
                detail = f"The file is too large: at most {self._max_bytes} bytes"
                raise ApiError(413, "body_too_large", detail, _CLOSE)
            yield chunk
