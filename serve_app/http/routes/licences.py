"""Reports of how often a licensed model was used on its licensee's own machines."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from pydantic import BaseModel, Field

from serve_app.accounts.licences import NotLicensed
from serve_app.http.auth import Generator
from serve_app.http.json_route import JsonRoute
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps
from serve_app.redis_store.connection import UNREACHABLE

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/v1/licenses", tags=["licences"], route_class=JsonRoute)


class UsageReport(BaseModel):
    number_of_generations: Annotated[int, Field(gt=0, le=1_000_000_000, strict=True)] = 1


class Recorded(BaseModel):
    message: str


@router.post("/models/{model_slug}/usage", responses=errors(400, 403, 500, 503))
async def report_usage(
    services: Deps, caller: Generator, model_slug: Annotated[str, Path(max_length=100)], report: UsageReport
) -> Recorded:
    """Counts generations for the key's organization, by model and UTC day."""
    if model_slug not in services.catalog.licensed_models:
        known = ", ".join(sorted(services.catalog.licensed_models))
        raise HTTPException(400, f"Model slug is not supported for usage reporting; supported: {known or 'none'}")
    try:
        await services.licences.report(caller.organization, model_slug, report.number_of_generations)
    except NotLicensed:
        raise HTTPException(403, f"{model_slug} is not licensed for this organization") from None
    except UNREACHABLE as problem:
        logger.warning("a usage report was not recorded: %s", type(problem).__name__)
        raise HTTPException(500, "Usage could not be processed: nothing was counted, send it again") from None
    return Recorded(message=f"Recorded {report.number_of_generations} generations of {model_slug}")
