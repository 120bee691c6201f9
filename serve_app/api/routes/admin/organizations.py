"""Admin routes of organizations, safety levels, ceilings and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from pydantic import BaseModel, Field

from deployments.contract.moderation import CATEGORIES
from serve_app.accounts.organizations import MAX_TOLERANCE, Name, Organization
from serve_app.api.auth import AccountReader, AuditReader, Operator
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import Before, OrganizationId, PageLimit, resolve_organization
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps
from serve_app.submission.errors import Invalid

router = APIRouter(route_class=JsonRoute)

OrganizationPath = Annotated[str, Path(max_length=64)]


class CreateOrganizationRequest(BaseModel):
    id: Name
    name: str = Field(default="", max_length=200, description="Display name; by default the id")


class OrganizationDetails(BaseModel):
    id: str
    name: str
    created: float | None = Field(description="Epoch seconds; null for the default organization")
    safety: dict[str, int] = Field(description="Highest safety tolerance by endpoint, if not the catalog's")
    ceilings: dict[str, int] = Field(description="Cap of the safety tolerance by moderation category")


class OrganizationList(BaseModel):
    organizations: list[OrganizationDetails]


class SafetyToleranceRequest(BaseModel):
    tolerance: int | None = Field(
        ge=0, le=MAX_TOLERANCE, description="Highest tolerance of requests; null for the catalog's"
    )


class SafetyCeilingRequest(BaseModel):
    tolerance: int | None = Field(ge=0, le=MAX_TOLERANCE, description="Cap for this category; null for none")


@router.get("/organizations", responses=errors(403, 503))
async def list_organizations(services: Deps, caller: Operator) -> OrganizationList:
    return OrganizationList(organizations=[_view(each) for each in await services.accounts.organizations.list()])


@router.post("/organizations", status_code=201, responses=errors(403, 409, 503))
async def create_organization(services: Deps, caller: Operator, new: CreateOrganizationRequest) -> OrganizationDetails:
    """Creates an organization, without credits."""
    if new.id == "default" or not await services.accounts.organizations.create(new.id, new.name or new.id, caller.id):
        raise HTTPException(409, "There is an organization of that id")
    return await _get_view(services, new.id)


@router.get("/organizations/{organization}", responses=errors(403, 404, 503))
async def get_organization(
    services: Deps, caller: AccountReader, organization: OrganizationPath
) -> OrganizationDetails:
    return await _get_view(services, await resolve_organization(services, caller, organization))


@router.put("/organizations/{organization}/safety/{endpoint:path}", responses=errors(403, 404, 503))
async def set_safety_tolerance(
    services: Deps,
    caller: Operator,
    organization: OrganizationPath,
    endpoint: Annotated[str, Path(max_length=100)],
    level: SafetyToleranceRequest,
) -> OrganizationDetails:
    """Sets the highest safety tolerance of an organization's requests to an endpoint. Takes effect within 10 s."""
    if endpoint not in services.catalog.served:
        raise HTTPException(404, "There is no such endpoint")
    highest = services.catalog.served[endpoint].highest_tolerance
    if level.tolerance is not None and level.tolerance > highest:
        raise Invalid(["body", "tolerance"], f"Requests to {endpoint} can name levels up to {highest}")
    organization = await resolve_organization(services, caller, organization)
    await services.accounts.organizations.approve(organization, endpoint, level.tolerance, caller.id)
    return await _get_view(services, organization)


@router.put("/organizations/{organization}/ceilings/{category}", responses=errors(403, 404, 503))
async def set_safety_ceiling(
    services: Deps,
    caller: Operator,
    organization: OrganizationPath,
    category: Annotated[str, Path(max_length=100, examples=["violence"])],
    ceiling: SafetyCeilingRequest,
) -> OrganizationDetails:
    """Caps the tolerance of a moderation category for all requests of an organization. Takes effect within 10 s."""
    if category not in CATEGORIES:
        raise HTTPException(404, f"There is no such category; the categories are: {', '.join(CATEGORIES)}")
    organization = await resolve_organization(services, caller, organization)
    await services.accounts.organizations.cap(organization, category, ceiling.tolerance, caller.id)
    return await _get_view(services, organization)


async def _get_view(services: Deps, organization: str) -> OrganizationDetails:
    organization_record = await services.accounts.organizations.get(organization)
    if organization_record is None:
        raise HTTPException(404, "There is no such organization")
    return _view(organization_record)


def _view(organization: Organization) -> OrganizationDetails:
    details = OrganizationDetails.model_validate(organization, from_attributes=True)
    return details.model_copy(update={"created": organization.created or None})


class AuditEntry(BaseModel):
    id: str
    at: float = Field(description="Epoch seconds")
    actor: str = Field(description="Id of a key, name of a person, or `command line`")
    action: str
    subject: str
    details: dict[str, str]


class AuditPage(BaseModel):
    changes: list[AuditEntry]
    next: str | None = Field(description="`before` of the next page; null on the last one")


@router.get("/audit", responses=errors(403, 404, 503))
async def list_audit_entries(
    services: Deps,
    caller: AuditReader,
    organization: OrganizationId = None,
    limit: PageLimit = 100,
    before: Before = None,
) -> AuditPage:
    """Lists all changes, newest first."""
    changes, following = await services.accounts.audit.read(
        await resolve_organization(services, caller, organization), limit, before
    )
    return AuditPage(
        changes=[AuditEntry.model_validate(each, from_attributes=True) for each in changes], next=following
    )
