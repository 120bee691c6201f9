"""Licences of an organization, and what it reported."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, Field

from serve_app.http.auth import AccountReader, MoneyReader, Operator
from serve_app.http.bodies import JsonRoute
from serve_app.http.routes.admin.scope import Day, OrganizationId, days_between, scoped
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps

router = APIRouter(prefix="/licences", route_class=JsonRoute)

Model = Annotated[str, Path(max_length=100)]


class Licence(BaseModel):
    model: str
    since: float = Field(description="Epoch seconds")


class LicenceList(BaseModel):
    licences: list[Licence]


class LicensedGenerations(BaseModel):
    day: date = Field(description="UTC")
    model: str
    generations: int


class LicensedGenerationsList(BaseModel):
    usage: list[LicensedGenerations]


@router.get("", responses=errors(403, 404, 503))
async def list_licences(services: Deps, caller: AccountReader, organization: OrganizationId = None) -> LicenceList:
    found = await services.licences.list(await scoped(services, caller, organization))
    return LicenceList(licences=[Licence(model=model, since=since) for model, since in found.items()])


@router.get("/usage", responses=errors(403, 404, 503))
async def list_licensed_generations(
    services: Deps,
    caller: MoneyReader,
    organization: OrganizationId = None,
    since: Annotated[Day | None, Query(description="First day, UTC; else the first of this month")] = None,
    until: Annotated[Day | None, Query(description="Last day, UTC; else today")] = None,
) -> LicensedGenerationsList:
    """What was reported, by day and model."""
    first, last = days_between(since, until, datetime.now(UTC).date())
    found = await services.licences.reported(await scoped(services, caller, organization), first, last)
    return LicensedGenerationsList(
        usage=[LicensedGenerations(day=each.day, model=each.model, generations=each.count) for each in found]
    )


@router.put("/{model}", status_code=204, responses=errors(403, 404, 503))
async def grant_licence(services: Deps, caller: Operator, model: Model, organization: OrganizationId = None) -> None:
    """Licenses a model; holds from the next report on."""
    if model not in services.catalog.licensed_models:
        raise HTTPException(404, "There is no such model")
    await services.licences.license(await scoped(services, caller, organization), model, caller.id)


@router.delete("/{model}", status_code=204, responses=errors(403, 404, 503))
async def revoke_licence(services: Deps, caller: Operator, model: Model, organization: OrganizationId = None) -> None:
    if not await services.licences.withdraw(await scoped(services, caller, organization), model, caller.id):
        raise HTTPException(404, "There is no such licence")
