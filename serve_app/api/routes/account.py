"""Account routes: credits, prices, usage."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError

from deployments.bundled.grammar.words import find_unknown
from serve_app.accounts.credits import Usage
from serve_app.api.auth import CreditReader, MoneyReader
from serve_app.api.bodies import FilesRoute
from serve_app.api.errors import suggest_fields
from serve_app.api.middleware import resolve_alias
from serve_app.api.routes.admin.scope import Day, OrganizationId, days_between, resolve_organization
from serve_app.api.routes.schemas import errors, other_regions_message, rate_limit_headers, rejection_error
from serve_app.api.services import Deps
from serve_app.inputs.geometry import megapixels
from serve_app.submission.errors import Invalid
from serve_app.submission.prepare import RequestPreparation, ServedEndpoint
from serve_app.tasks.rejections import RateLimited

router = APIRouter(prefix="/v1", tags=["account"], route_class=FilesRoute)

PRICING: Final = "/v1/pricing"
_MAX_WORDS: Final = 10

_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


class Credits(BaseModel):
    credits: float = Field(description="Balance after subtracting the holds of unfinished tasks")


class PriceRequest(BaseModel):
    path: str = Field(max_length=200, description="Path of the request: /v1/gen-…")
    body: dict[str, Any] = Field(description="Body of the request")


class Price(BaseModel):
    cost: float = Field(description="Credits")
    input_mp: float
    output_mp: float
    warnings: list[str] = Field(default=[], description="Parts of the request that will have no effect")


class DailyUsage(BaseModel):
    day: date = Field(description="UTC day on which the tasks became ready")
    project: str
    endpoint: str
    tasks: int
    cost: float = Field(description="Credits")


class UsageReport(BaseModel):
    usage: list[DailyUsage]


@router.get("/credits", responses=errors(403, 503))
async def get_credits(services: Deps, caller: CreditReader) -> Credits:
    """Returns the credits of the key's organization."""
    return Credits(credits=(await services.accounts.credits.balance(caller.organization)).balance / 1000)


@router.post(PRICING.removeprefix("/v1"), responses=errors(400, 403, 404, 413, 429, 503))
async def get_price(services: Deps, caller: CreditReader, request: PriceRequest, response: Response) -> Price:
    """Returns a request's cost after the checks of a submission. Nothing is stored. Counts as a request of the key."""
    path = resolve_alias(request.path, services.settings.service.path_aliases).removeprefix("/v1/")
    name = services.catalog.names.get(path)
    if name is None:
        raise HTTPException(404, "Not Found")
    endpoint = services.catalog.served[name]
    if message := other_regions_message(name, endpoint, services.settings.service):
        raise HTTPException(404, message)
    limits = services.tasks.store.limits
    try:
        body = endpoint.request_type.model_validate(request.body)
        remaining = await services.tasks.store.consume_rate_limit(caller.id)
        served_endpoint = ServedEndpoint(name, endpoint, services.catalog.defaults(endpoint, services.settings))
        prepared = await RequestPreparation(services.inputs.submission, caller, served_endpoint, body).prepare("")
    except ValidationError as problem:
        raise RequestValidationError(
            [
                {**error, "loc": ("body", "body", *error["loc"])}
                for error in suggest_fields(problem.errors(), endpoint.request_type.field_names(request.body))
            ]
        ) from None
    except RateLimited as refusal:
        raise rejection_error(refusal, name, services) from None
    except Invalid as problem:
        raise problem.within("body") from None
    response.headers.update(rate_limit_headers(limits, remaining))
    resolved, warnings = prepared.payload.request, list(prepared.payload.warnings)
    prompt: str = getattr(body, "prompt", None) or ""  # as sent, without the endpoint's instruction
    is_demo = served_endpoint.defaults[body.chosen_mode()].demo
    if is_demo and prepared.payload.adapter is None and (words := find_unknown(prompt)):
        unknown_words = ", ".join(words[:_MAX_WORDS])
        warnings.append(f"The demo model draws coloured shapes only. It does not know: {unknown_words}")
    return Price(
        cost=prepared.price / 1000,
        input_mp=megapixels(resolved.input_pixels),
        output_mp=megapixels(resolved.area),
        warnings=warnings,
    )


@router.get("/usage", response_model=UsageReport, responses=errors(403, 404, 503) | _CSV)
async def get_usage(
    services: Deps,
    caller: MoneyReader,
    organization: OrganizationId = None,
    since: Annotated[Day | None, Query(description="First day, UTC; by default the first of this month")] = None,
    until: Annotated[Day | None, Query(description="Last day, UTC; by default today")] = None,
    project: Annotated[str | None, Query(max_length=64, description="Only this project")] = None,
    format: Annotated[Literal["json", "csv"], Query()] = "json",
) -> Any:
    """Returns the usage by day, project and endpoint."""
    first, last = days_between(since, until, datetime.now(UTC).date())
    organization_id = await resolve_organization(services, caller, organization)
    usage = await services.accounts.credits.usage(organization_id, first, last)
    project_usage = [each for each in usage if project in (None, each.project)]
    if format == "csv":
        name = f"usage-{first}-{last}.csv"
        return Response(
            _csv(project_usage),
            media_type="text/csv",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )
    return UsageReport(
        usage=[
            DailyUsage(
                day=each.day, project=each.project, endpoint=each.endpoint, tasks=each.tasks, cost=each.cost / 1000
            )
            for each in project_usage
        ]
    )


def _csv(usage: list[Usage]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("day", "project", "endpoint", "tasks", "credits"))
    writer.writerows((each.day, each.project, each.endpoint, each.tasks, f"{each.cost / 1000:.3f}") for each in usage)
    return text.getvalue()
