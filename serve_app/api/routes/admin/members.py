"""Admin routes of members and people."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, HTTPException, Path
from pydantic import AfterValidator, BaseModel

from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Permission, Role
from serve_app.accounts.sessions import SubjectType
from serve_app.api.auth import AccountReader, MemberMaker, Operator
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import LATER, OrganizationId, resolve_organization
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps, Services

router = APIRouter(route_class=JsonRoute)

Person = Annotated[
    str,
    Path(max_length=200, description="The member's name, as in the claim `sub`"),
    AfterValidator(fold_name),
]
MemberRole = Literal[Role.ADMINISTRATOR, Role.DEVELOPER, Role.BILLING_MANAGER, Role.VIEWER]
_NOT_A_MEMBER: Final = (
    "There is no such member, and no identity provider verifies that name. Send an invitation: "
    "POST /v1/invitations creates its link"
)


class SetMemberRequest(BaseModel):
    role: MemberRole


class MemberDetails(BaseModel):
    person: str
    role: Role


class MemberList(BaseModel):
    members: list[MemberDetails]


@router.get("/members", responses=errors(403, 404, 503))
async def list_members(services: Deps, caller: AccountReader, organization: OrganizationId = None) -> MemberList:
    members = await services.accounts.organizations.members(await resolve_organization(services, caller, organization))
    return MemberList(members=[MemberDetails(person=person, role=role) for person, role in members.items()])


@router.put("/members/{person:path}", responses=errors(403, 404, 409, 429, 503))
async def set_member(
    services: Deps, caller: MemberMaker, person: Person, change: SetMemberRequest, organization: OrganizationId = None
) -> MemberDetails:
    """Sets a member's role. If an identity provider verifies names, this also adds a member."""
    organization_id = await resolve_organization(services, caller, organization)
    if await services.accounts.organizations.get_role(organization_id, person) is None:
        await _check_verified(services, person)
    limit = services.settings.accounts.max_members
    if not (
        caller.may(Permission.OPERATE)
        or await services.accounts.organizations.has_capacity(organization_id, person, limit)
    ):
        raise HTTPException(429, f"Too many members: an organization may have {limit}; remove one first", LATER)
    await services.accounts.organizations.set_member(organization_id, person, change.role, caller.id)
    await services.accounts.invitations.withdraw(organization_id, person)  # it may grant more than the new role
    return MemberDetails(person=person, role=change.role)


async def _check_verified(services: Services, person: str) -> None:
    """Raises 409 unless an identity provider verifies the name: anyone could have registered it with a password."""
    accounts = services.settings.accounts
    if (accounts.openid is None and not accounts.issuers) or await services.accounts.people.exists(person):
        raise HTTPException(409, _NOT_A_MEMBER)


@router.delete("/members/{person:path}", status_code=204, responses=errors(403, 404, 503))
async def remove_member(
    services: Deps, caller: MemberMaker, person: Person, organization: OrganizationId = None
) -> None:
    organization_id = await resolve_organization(services, caller, organization)
    if not await services.accounts.organizations.remove_member(organization_id, person, caller.id):
        raise HTTPException(404, "There is no such member")
    await services.auth.membership_revocation.member(person, organization_id, caller.id)


@router.delete("/people/{person:path}", status_code=204, responses=errors(403, 404, 503))
async def delete_person(services: Deps, caller: Operator, person: Annotated[str, Path(max_length=200)]) -> None:
    """Deletes a person's password and sessions. A person without memberships can then be invited again."""
    if not await services.accounts.people.forget(person):
        raise HTTPException(404, "There is no person of that name with a password")
    for organization in await services.accounts.organizations.list_for_person(person):
        await services.auth.membership_revocation.member(person, organization, caller.id)
    await services.auth.sessions.end_all(SubjectType.PERSON, person)
