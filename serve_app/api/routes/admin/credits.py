"""Admin routes of credits, grants, the ledger and licences."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, Field

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.credits import BalanceChange, InsufficientBalance, format_credits
from serve_app.api.auth import AccountReader, MoneyReader, Operator
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import Before, Day, OrganizationId, PageLimit, days_between, resolve_organization
from serve_app.api.routes.schemas import conceal_id, errors
from serve_app.api.services import Deps

router = APIRouter(route_class=JsonRoute)


class CreditBalance(BaseModel):
    """Credits. `granted` is the sum of the others."""

    credits: float = Field(description="Balance")
    held: float = Field(description="For unfinished tasks")
    spent: float
    granted: float


class CreditGrantRequest(BaseModel):
    id: str = Field(min_length=1, max_length=100, description="A repeated grant of this id has no effect")
    credits: Annotated[float, Field(ge=-1e12, le=1e12)] = Field(description="A negative number takes some back")
    note: str = Field(default="", max_length=500)


class CreditGrant(BaseModel):
    credits: float = Field(description="Balance")
    repeated: bool = Field(description="Whether the grant existed, so that nothing changed")


class LedgerEntry(BaseModel):
    id: str
    at: float = Field(description="Epoch seconds")
    kind: str = Field(description="grant, hold, settle or return")
    credits: float = Field(description="Change of the balance")
    balance: float = Field(description="Balance after the change")
    about: dict[str, str] = Field(
        description="For a task: task (sha256:… if of another project), project, endpoint; for a grant: grant, by, note"
    )


class LedgerPage(BaseModel):
    entries: list[LedgerEntry]
    next: str | None = Field(description="`before` of the next page; null on the last one")


@router.get("/credits", responses=errors(403, 404, 503))
async def get_credit_balance(services: Deps, caller: MoneyReader, organization: OrganizationId = None) -> CreditBalance:
    now = await services.accounts.credits.balance(await resolve_organization(services, caller, organization))
    return CreditBalance(
        credits=now.balance / 1000, held=now.held / 1000, spent=now.spent / 1000, granted=now.granted / 1000
    )


@router.post("/credits/grants", responses=errors(403, 404, 409, 503))
async def grant_credits(
    services: Deps, caller: Operator, grant: CreditGrantRequest, organization: OrganizationId = None
) -> CreditGrant:
    """Grants credits to an organization."""
    organization_id = await resolve_organization(services, caller, organization)
    try:
        balance, is_new = await services.accounts.credits.grant(
            organization_id, grant.id, round(grant.credits * 1000), caller.id, grant.note
        )
    except InsufficientBalance as problem:
        raise HTTPException(409, f"There are only {format_credits(problem.balance)} credits to take back") from None
    return CreditGrant(credits=balance / 1000, repeated=not is_new)


@router.get("/ledger", responses=errors(403, 404, 503))
async def list_ledger_entries(
    services: Deps,
    caller: MoneyReader,
    organization: OrganizationId = None,
    limit: PageLimit = 100,
    before: Before = None,
) -> LedgerPage:
    """Lists the changes of the balance, newest first."""
    entries, following = await services.accounts.credits.ledger(
        await resolve_organization(services, caller, organization), limit, before
    )
    return LedgerPage(
        entries=[
            LedgerEntry(
                id=entry.id,
                at=entry.at,
                kind=entry.kind,
                credits=entry.amount / 1000,
                balance=entry.balance / 1000,
                about={name: _format_about(name, value, entry, caller) for name, value in entry.about.items()},
            )
            for entry in entries
        ],
        next=following,
    )


def _format_about(name: str, value: str, entry: BalanceChange, caller: Caller) -> str:
    match name:
        case "cost":
            return format_credits(int(value))
        case "task" if entry.about.get("project") != caller.project.id:
            return conceal_id(value)
        case _:
            return value


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


@router.get("/licences", responses=errors(403, 404, 503))
async def list_licences(services: Deps, caller: AccountReader, organization: OrganizationId = None) -> LicenceList:
    licences = await services.accounts.licences.list(await resolve_organization(services, caller, organization))
    return LicenceList(licences=[Licence(model=model, since=since) for model, since in licences.items()])


@router.get("/licences/usage", responses=errors(403, 404, 503))
async def list_licensed_generations(
    services: Deps,
    caller: MoneyReader,
    organization: OrganizationId = None,
    since: Annotated[Day | None, Query(description="First day, UTC; by default the first of this month")] = None,
    until: Annotated[Day | None, Query(description="Last day, UTC; by default today")] = None,
) -> LicensedGenerationsList:
    """Lists the reported generations by day and model."""
    first, last = days_between(since, until, datetime.now(UTC).date())
    generations = await services.accounts.licences.list_generations(
        await resolve_organization(services, caller, organization), first, last
    )
    return LicensedGenerationsList(
        usage=[LicensedGenerations(day=each.day, model=each.model, generations=each.count) for each in generations]
    )


@router.put("/licences/{model}", status_code=204, responses=errors(403, 404, 503))
async def grant_licence(services: Deps, caller: Operator, model: Model, organization: OrganizationId = None) -> None:
    """Licenses a model, from the next report on."""
    if model not in services.catalog.licensed_models:
        raise HTTPException(404, "There is no such model")
    await services.accounts.licences.license(
        await resolve_organization(services, caller, organization), model, caller.id
    )


@router.delete("/licences/{model}", status_code=204, responses=errors(403, 404, 503))
async def revoke_licence(services: Deps, caller: Operator, model: Model, organization: OrganizationId = None) -> None:
    if not await services.accounts.licences.withdraw(
        await resolve_organization(services, caller, organization), model, caller.id
    ):
        raise HTTPException(404, "There is no such licence")
