"""Routes of invitations, links that make people members."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, HTTPException, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from serve_app.accounts.attempt_limiter import TooManyAttempts
from serve_app.accounts.members import INVITATION_LIFE_S, MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS
from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Role, may_grant
from serve_app.accounts.sessions import SubjectType
from serve_app.api.auth import MemberMaker, check_origin
from serve_app.api.bodies import JsonRoute
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import Secret, errors
from serve_app.api.routes.session import SessionInfo, begin_session, verify_password
from serve_app.api.services import Deps

router = APIRouter(prefix="/v1", tags=["session"], route_class=JsonRoute)

_Secret = Annotated[str, Header(alias="x-secret", max_length=64, description="As in the link")]
"""Secret of an invitation. It is no part of the URL, which proxies log: the first to read it there could accept."""
_GONE: Final = "This invitation was already accepted or has expired. Ask for a new one"


def _check_printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name must not have invisible characters")
    return name


class CreateInvitationRequest(BaseModel):
    role: Literal[Role.ADMINISTRATOR, Role.DEVELOPER, Role.BILLING_MANAGER, Role.VIEWER]


class CreatedInvitation(BaseModel):
    link: str = Field(description="Send it to one person; it is shown once")
    expires_in: int = Field(description="Seconds")


class Invitation(BaseModel):
    organization: str
    role: Role
    by: str


class AcceptInvitationRequest(BaseModel):
    name: Annotated[str, AfterValidator(_check_printable), AfterValidator(fold_name)] = Field(
        max_length=200, pattern=r"^[^\s@/()]+@[^\s@/()]+$", description="An e-mail address: keys and programs have none"
    )
    password: Secret = Field(min_length=MIN_PASSWORD_CHARS, max_length=MAX_PASSWORD_CHARS)


@router.post("/invitations", responses=errors(403, 429, 503))
async def create_invitation(
    request: Request, services: Deps, caller: MemberMaker, new: CreateInvitationRequest
) -> CreatedInvitation:
    """Creates a link. The first person to accept it becomes a member of the caller's organization."""
    if not may_grant(caller.role, new.role):
        raise HTTPException(403, f"Not allowed: your role can't invite a {new.role.value}")
    try:
        secret = await services.accounts.invitations.create(caller.organization, new.role, caller.id)
    except TooManyAttempts as refusal:
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
    """Signs a person up, or checks their password, makes them a member, and signs them in."""
    check_origin(request, services.settings.service)
    if await services.accounts.invitations.find(secret) is None:
        raise HTTPException(404, _GONE)
    name = acceptance.name
    if not await services.accounts.people.exists(name):
        await _check_free(services, name)
    is_new = await services.accounts.people.create_user(name, acceptance.password.get_secret_value())
    if not is_new and not await verify_password(services, request, name, acceptance.password):
        raise HTTPException(409, "There is someone of that name, who has another password")
    invitation = await services.accounts.invitations.take(secret)
    if invitation is None:  # another request was faster
        # That may have been one of this person, which made them a member.
        if is_new and not await services.accounts.organizations.list_for_person(name):
            await services.accounts.people.forget(name)
        raise HTTPException(404, _GONE)
    current_role = await services.accounts.organizations.get_role(invitation.organization, name)
    if current_role is None or may_grant(invitation.role, current_role):  # never a lower role
        await services.accounts.organizations.set_member(invitation.organization, name, invitation.role, invitation.by)
    projects = await services.accounts.projects.list(invitation.organization)
    if not projects:
        raise HTTPException(409, "You are a member now, but the organization has no project yet")
    return await begin_session(services, request, response, SubjectType.PERSON, name, projects[0])


async def _check_free(services: Deps, name: str) -> None:
    """Raises HTTPException for a name that belongs, or may belong, to a member who signs in by a token."""
    accounts = services.settings.accounts
    if accounts.openid is not None or accounts.issuers:
        raise HTTPException(403, "People sign in by another provider here: ask to be made a member by the name there")
    if await services.accounts.organizations.list_for_person(name):
        raise HTTPException(409, "There is someone of that name")
