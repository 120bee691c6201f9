"""Routes of invitations, links that make people members."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, HTTPException, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from serve_app.accounts.attempt_limiter import TooOften
from serve_app.accounts.members import INVITATION_LIFE_S, LONGEST_PASSWORD, SHORTEST_PASSWORD
from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Role, may_hand_out
from serve_app.accounts.sessions import Kind
from serve_app.api.auth import MemberMaker, check_origin
from serve_app.api.bodies import JsonRoute
from serve_app.api.hosts import client_address, public_base
from serve_app.api.routes.schemas import Secret, errors
from serve_app.api.routes.session import SessionInfo, begin
from serve_app.api.services import Deps

router = APIRouter(prefix="/v1", tags=["session"], route_class=JsonRoute)

_Secret = Annotated[str, Header(alias="x-secret", max_length=64, description="As in the link")]
"""In no address: proxies log those, and whoever reads it first accepts."""
_GONE = "This invitation was already accepted or has expired. Ask for a new one"


def _plain(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name has no characters that nobody sees")
    return name


class CreateInvitationRequest(BaseModel):
    role: Literal[Role.ADMINISTRATOR, Role.DEVELOPER, Role.BILLING_MANAGER, Role.VIEWER]


class CreatedInvitation(BaseModel):
    link: str = Field(description="To be sent to one person; shown once")
    expires_in: int = Field(description="Seconds")


class Invitation(BaseModel):
    organization: str
    role: Role
    by: str


class AcceptInvitationRequest(BaseModel):
    name: Annotated[str, AfterValidator(_plain), AfterValidator(fold_name)] = Field(
        max_length=200, pattern=r"^[^\s@/()]+@[^\s@/()]+$", description="An e-mail address: keys and programs have none"
    )
    password: Secret = Field(min_length=SHORTEST_PASSWORD, max_length=LONGEST_PASSWORD)


@router.post("/invitations", responses=errors(403, 429, 503))
async def create_invitation(
    request: Request, services: Deps, caller: MemberMaker, new: CreateInvitationRequest
) -> CreatedInvitation:
    """A link that makes whoever opens it first a member of the caller's organization."""
    if not may_hand_out(caller.role, new.role):
        raise HTTPException(403, f"Not allowed: you can't make anybody a {new.role.value}")
    try:
        secret = await services.accounts.invitations.write(caller.organization, new.role, caller.id)
    except TooOften as refusal:
        raise HTTPException(429, "Too many invitations lately", {"Retry-After": str(refusal.retry_s)}) from None
    link = f"{public_base(request, services.settings.service)}/invitation#{secret}"
    return CreatedInvitation(link=link, expires_in=INVITATION_LIFE_S)


@router.get("/invitation", responses=errors(404, 503))
async def get_invitation(services: Deps, secret: _Secret) -> Invitation:
    invitation = await services.accounts.invitations.find(secret)
    if invitation is None:
        raise HTTPException(404, _GONE)
    return Invitation(organization=invitation.organization, role=invitation.role, by=invitation.by)


@router.post("/invitation", responses=errors(403, 404, 409, 429, 503))
async def accept_invitation(
    request: Request, response: Response, services: Deps, secret: _Secret, acceptance: AcceptInvitationRequest
) -> SessionInfo:
    """Makes a person of that name, or takes the one who has that password, a member, and signs them in."""
    check_origin(request, services.settings.service)
    if await services.accounts.invitations.find(secret) is None:
        raise HTTPException(404, _GONE)
    name, password = acceptance.name, acceptance.password.get_secret_value()
    if not await services.accounts.people.exists(name):
        await _check_free(services, name)
    is_new = await services.accounts.people.enrol(name, password)
    if not is_new:
        await _check_password(services, request, name, password)
    invitation = await services.accounts.invitations.take(secret)
    if invitation is None:  # somebody else was faster
        # Unless they became a member meanwhile, by another request of theirs.
        if is_new and not await services.accounts.organizations.list_for_person(name):
            await services.accounts.people.forget(name)
        raise HTTPException(404, _GONE)
    current_role = await services.accounts.organizations.get_role(invitation.organization, name)
    if current_role is None or may_hand_out(invitation.role, current_role):  # nobody is less by an invitation
        await services.accounts.organizations.set_member(invitation.organization, name, invitation.role, invitation.by)
    projects = await services.accounts.projects.list(invitation.organization)
    if not projects:
        raise HTTPException(409, "You are a member now; there is no project yet to be in")
    return await begin(services, request, response, Kind.PERSON, name, projects[0])


async def _check_free(services: Deps, name: str) -> None:
    """Nobody may take the name of a member who signs in by a token: what they may, the one of that name may."""
    accounts = services.settings.accounts
    if accounts.openid is not None or accounts.issuers:
        raise HTTPException(403, "People sign in by another provider here: ask to be made a member by the name there")
    if await services.accounts.organizations.list_for_person(name):
        raise HTTPException(409, "There is someone of that name")


async def _check_password(services: Deps, request: Request, name: str, password: str) -> None:
    try:
        right = await services.accounts.people.verify(
            name, password, client_address(request, services.settings.service)
        )
    except TooOften as refusal:
        raise HTTPException(429, "Too many sign-ins failed", {"Retry-After": str(refusal.retry_s)}) from None
    if not right:
        raise HTTPException(409, "There is someone of that name, who has another password")
