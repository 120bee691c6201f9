"""Usage reports of models that organizations run themselves under a licence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Path, Request, Response
from pydantic import BaseModel, Field

from serve_app.accounts.licences import NotLicensed
from serve_app.api.auth import Generator
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps
from serve_app.storage.connection import NO_ANSWER, UNREACHABLE

logger = logging.getLogger(__name__)

VERSION: Final = "0.0.1"
"""Version of this interface, which other services implement, too."""
_UNREACHABLE: Final = "the store is out of reach"


class _ReportRoute(JsonRoute):
    """Answers 500 in place of 503, which this interface lacks."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_report(request: Request) -> Response:
            try:
                return await handle(request)
            except UNREACHABLE as problem:
                raise _report_error(problem, _UNREACHABLE) from None
            except HTTPException as problem:
                if problem.status_code != 503:
                    raise
                raise _report_error(problem, problem.detail) from None

        return handle_report


router = APIRouter(prefix="/v1/licenses", tags=["licences"], route_class=_ReportRoute)


class GenerationReport(BaseModel):
    number_of_generations: Annotated[int, Field(gt=0, le=1_000_000_000, strict=True)] = 1


class GenerationReportReceipt(BaseModel):
    message: str


@router.post("/models/{model_slug}/usage", responses=errors(400, 403, 500), openapi_extra={"x-version": VERSION})
async def report_generations(
    services: Deps, caller: Generator, model_slug: Annotated[str, Path(max_length=100)], report: GenerationReport
) -> GenerationReportReceipt:
    """Counts generations for the key's organization, by model and UTC day."""
    if model_slug not in services.catalog.licensed_models:
        slugs = ", ".join(sorted(services.catalog.licensed_models))
        raise HTTPException(400, f"Model slug is not supported for usage reporting; supported: {slugs or 'none'}")
    try:
        await services.accounts.licences.report(caller.organization, model_slug, report.number_of_generations)
    except NotLicensed:
        raise HTTPException(403, f"{model_slug} is not licensed for this organization") from None
    except NO_ANSWER as problem:
        raise _report_error(problem, _UNREACHABLE, "whether anything was counted is not known") from None
    return GenerationReportReceipt(message=f"Recorded {report.number_of_generations} generations of {model_slug}")


def _report_error(problem: Exception, why: str, outcome: str = "nothing was counted, send it again") -> HTTPException:
    logger.warning("a usage report was not recorded: %s", type(problem).__name__)
    return HTTPException(500, f"Usage could not be processed: {why}; {outcome}")
