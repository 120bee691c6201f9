"""Routes of tuned models (LoRA)."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator, TaskReader
from serve_app.api.bodies import JsonRoute
from serve_app.api.errors import ApiError
from serve_app.api.routes.schemas import PROJECT_CLOSED, errors
from serve_app.api.services import Deps
from serve_app.finetunes.registry import (
    CheckFailed,
    Finetune,
    FinetuneDeleted,
    FinetunesClosed,
    InvalidAdapter,
    TooManyFinetunes,
    UploadTooSlow,
)
from serve_app.submission.errors import Invalid

router = APIRouter(prefix="/v1", tags=["tuned models"], route_class=JsonRoute)

UPLOAD = "/v1/finetunes"

_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The safetensors file itself.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class FinetuneDetails(BaseModel):
    finetune_id: str
    name: str
    base: str
    status: str
    rank: int
    layers: int
    size: int
    created: float


class FinetuneList(BaseModel):
    finetunes: list[FinetuneDetails]


class FinetuneDetailsResponse(BaseModel):
    finetune_details: FinetuneDetails


class DeleteFinetuneRequest(BaseModel):
    finetune_id: Annotated[str, Field(max_length=128)]


class DeletedFinetune(BaseModel):
    status: str
    message: str
    deleted_finetune_id: str
    timestamp: float


@router.post(UPLOAD.removeprefix("/v1"), responses=errors(403, 408, 409, 413, 429, 503), openapi_extra=_FILE)
async def upload_finetune(
    request: Request,
    services: Deps,
    caller: Generator,
    name: Annotated[str, Query(min_length=1, max_length=128, description="Name of the tuned model")],
    base: Annotated[str, Query(max_length=128, description="Endpoint it was trained for, e.g. gen-3-image-klein")],
) -> FinetuneDetails:
    """Uploads a tuned model (LoRA). Every matrix must match a layer of its base."""
    endpoint = services.catalog.endpoints.get(base)
    if endpoint is None or endpoint.finetuned is None:
        bases = sorted(name for name, endpoint in services.catalog.endpoints.items() if endpoint.finetuned)
        raise Invalid(["query", "base"], f"Endpoints with tuned models: {', '.join(bases)}")
    try:
        finetune = await services.inputs.uploads.receive(
            request.stream(), name=name, project=caller.project, endpoint=base
        )
    except InvalidAdapter as reason:
        raise Invalid(["body"], f"Not a tuned model of {base}: {reason}", "finetune_invalid") from None
    except ClientDisconnect:
        raise HTTPException(400, "The body ended early") from None  # not a failure of the service
    except UploadTooSlow as reason:
        # The rest of the body stays unread, so the connection can't be reused.
        raise HTTPException(408, str(reason), {"Connection": "close"}) from None
    except TooManyFinetunes as reason:
        raise HTTPException(429, str(reason), {"Retry-After": "10"}) from None
    except FinetunesClosed:
        raise ApiError(403, "project_closed", PROJECT_CLOSED) from None
    except FinetuneDeleted:
        raise HTTPException(409, "This tuned model was deleted while it was being uploaded") from None
    except CheckFailed:
        raise HTTPException(503, "The file could not be checked now; try again later", {"Retry-After": "30"}) from None
    return _details(finetune)


@router.get("/my_finetunes", responses=errors(403, 503))
async def list_finetunes(services: Deps, caller: TaskReader) -> FinetuneList:
    """Lists the tuned models of the key's project, newest first."""
    return FinetuneList(
        finetunes=[_details(finetune) for finetune in await services.inputs.finetunes.list(caller.project.id)]
    )


@router.get("/finetune_details", responses=errors(403, 404, 503))
async def get_finetune(
    services: Deps, caller: TaskReader, finetune_id: Annotated[str, Query(max_length=128)]
) -> FinetuneDetailsResponse:
    """Returns a tuned model of the key's project."""
    return FinetuneDetailsResponse(finetune_details=_details(await _find_own(services, caller, finetune_id)))


@router.post("/delete_finetune", responses=errors(403, 404, 503))
async def delete_finetune(services: Deps, caller: Generator, request: DeleteFinetuneRequest) -> DeletedFinetune:
    """Deletes a tuned model. Its tasks that have not started end as `Error`."""
    finetune = await _find_own(services, caller, request.finetune_id)
    await services.inputs.uploads.remove(finetune)
    return DeletedFinetune(
        status="success",
        message=f"Deleted {finetune.name}",
        deleted_finetune_id=finetune.id,
        timestamp=round(time.time(), 3),
    )


async def _find_own(services: Deps, caller: Caller, finetune_id: str) -> Finetune:
    finetune = await services.inputs.finetunes.get(finetune_id, caller.project.id)
    if finetune is None:
        raise ApiError(404, "finetune_not_found", "Finetune not found or access denied")
    return finetune


def _details(finetune: Finetune) -> FinetuneDetails:
    return FinetuneDetails(
        finetune_id=finetune.id,
        name=finetune.name,
        base=finetune.endpoint,
        status=finetune.status,
        rank=finetune.rank,
        layers=finetune.layers,
        size=finetune.size,
        created=finetune.created,
    )
