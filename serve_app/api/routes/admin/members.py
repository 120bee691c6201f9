"""Admin routes of members and people."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, HTTPException, Path
from pydantic import AfterValidator, BaseModel

from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Permission, Role
from serve_app.accounts.sessions import Kind
from serve_app.api.auth import AccountReader, MemberMaker, Operator
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import LATER, OrganizationId, resolve_organization
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps, Services

router = APIRouter(route_class=JsonRoute)

Person = Annotated[
    str, Path(max_length=200, description="As tokens name them: the claim `sub`"), AfterValidator(fold_name)
]
MemberRole = Literal[Role.ADMINISTRATOR, Role.DEVELOPER, Role.BILLING_MANAGER, Role.VIEWER]
_NO_MEMBER: Final = "There is no such member, and nobody vouches for who signs in by that name. Send an invitation"


class SetMemberRequest(BaseModel):
    role: MemberRole


class Member(BaseModel):
    person: str
    role: Role


class MemberList(BaseModel):
    members: list[Member]


@router.get("/members", responses=errors(403, 404, 503))
async def list_members(services: Deps, caller: AccountReader, organization: OrganizationId = None) -> MemberList:
    members = await services.accounts.organizations.members(await resolve_organization(services, caller, organization))
    return MemberList(members=[Member(person=person, role=role) for person, role in members.items()])


@router.put("/members/{person:path}", responses=errors(403, 404, 409, 429, 503))
async def set_member(
    services: Deps, caller: MemberMaker, person: Person, change: SetMemberRequest, organization: OrganizationId = None
) -> Member:
    """Gives a member another role. Makes someone a member where a provider of identities vouches for names."""
    chosen = await resolve_organization(services, caller, organization)
    if await services.accounts.organizations.get_role(chosen, person) is None:
        await _check_vouched_for(services, person)
    most = services.settings.accounts.max_members
    if not (caller.may(Permission.OPERATE) or await services.accounts.organizations.has_room(chosen, person, most)):
        raise HTTPException(429, f"Too many members: an organization may have {most}; take one out first", LATER)
    await services.accounts.organizations.set_member(chosen, person, change.role, caller.id)
    await services.accounts.invitations.withdraw(chosen, person)  # which may give more than the new role may
    return Member(person=person, role=change.role)


async def _check_vouched_for(services: Services, person: str) -> None:
    """Raises 409 unless only the person themselves can sign in by that name: anyone may have enrolled by an address."""
    accounts = services.settings.accounts
    if (accounts.openid is None and not accounts.issuers) or await services.accounts.people.exists(person):
        raise HTTPException(409, f"{_NO_MEMBER}: POST /v1/invitations makes a link that makes its reader a member")


@router.delete("/members/{person:path}", status_code=204, responses=errors(403, 404, 503))
async def remove_member(
    services: Deps, caller: MemberMaker, person: Person, organization: OrganizationId = None
) -> None:
    chosen = await resolve_organization(services, caller, organization)
    if not await services.accounts.organizations.remove_member(chosen, person, caller.id):
        raise HTTPException(404, "There is no such member")
    await services.auth.membership_revocation.member(person, chosen, caller.id)


@router.delete("/people/{person:path}", status_code=204, responses=errors(403, 404, 503))
async def delete_person(services: Deps, caller: Operator, person: Annotated[str, Path(max_length=200)]) -> None:
    """Takes a password and its sessions away. Whoever is no member any more may be invited by that name again."""
    if not await services.accounts.people.forget(person):
        raise HTTPException(404, "There is no one of that name who has a password")
    for organization in await services.accounts.organizations.list_for_person(person):
        await services.auth.membership_revocation.member(person, organization, caller.id)
    await services.auth.sessions.end_all(Kind.PERSON, person)
