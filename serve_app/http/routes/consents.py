"""What people answer to programs that ask for access: the page `/consent`, where an authorization request leads."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from mcp.server.auth.provider import construct_redirect_uri
from pydantic import BaseModel, ConfigDict, Field

from serve_app.accounts.authorizations import ROLES, Asked, Given
from serve_app.accounts.callers import Caller
from serve_app.accounts.roles import Role, may_hand_out
from serve_app.accounts.sessions import Session
from serve_app.http.bodies import JsonRoute
from serve_app.http.browser import check_origin, session_secret
from serve_app.http.origin import public_base
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps, Services

router = APIRouter(prefix="/v1/consent", tags=["session"], route_class=JsonRoute)

_Secret = Annotated[str, Header(alias="x-secret", max_length=64, description="As behind the # of the page's address")]
"""In no address: proxies log those."""
_GONE = "This question was answered already, or is too old: begin anew in the program"


class ConsentRequest(BaseModel):
    program: str = Field(description="As it calls itself")
    goes_to: str = Field(description="Where the answer is sent: a host, or the scheme of an installed program")
    roles: list[Role] = Field(description="What it may be here; the first is the most that it asks for")


class ConsentDecision(BaseModel):
    model_config = ConfigDict(extra="forbid")

    allow: bool
    project: str | None = Field(default=None, max_length=64, description="To allow it: what the person was shown")
    role: Role = Role.DEVELOPER
    everywhere: bool = Field(default=False, description="In the organization's other projects, too")


class ConsentRedirect(BaseModel):
    redirect: str = Field(description="Where the browser goes on")


async def _signed_in(request: Request, services: Deps) -> tuple[Session, Caller]:
    """A person at a browser: neither keys nor programs let programs in."""
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.sessions.find(secret)
    caller = None if secret is None else await services.signed_in.caller(secret)
    if session is None or caller is None:
        raise HTTPException(403, "Sign in first")
    check_origin(request, services.settings.service)
    return session, caller


_SignedIn = Annotated[tuple[Session, Caller], Depends(_signed_in)]


@router.get("", responses=errors(403, 404, 503))
async def get_consent_request(services: Deps, signed_in: _SignedIn, secret: _Secret) -> ConsentRequest:
    asked = await services.authorizations.asked(secret)
    if asked is None:
        raise HTTPException(404, _GONE)
    _, caller = signed_in
    return ConsentRequest(program=asked.name, goes_to=_goes_to(asked), roles=_roles(asked, caller))


@router.post("", responses=errors(403, 404, 409, 503))
async def answer_consent_request(
    request: Request, services: Deps, signed_in: _SignedIn, secret: _Secret, answer: ConsentDecision
) -> ConsentRedirect:
    """Lets the program into the project that the session is in, or not, and says where to go on."""
    session, caller = signed_in
    asked = await services.authorizations.asked(secret)
    if asked is None:
        raise HTTPException(404, _GONE)
    if answer.allow and answer.project != caller.project.id:
        raise HTTPException(409, f"You are in the project {caller.project.id} now: look at the question again")
    if answer.allow and answer.role not in _roles(asked, caller):
        raise HTTPException(403, f"Not allowed: you can't make this program a {answer.role.value}")
    if await services.authorizations.take(secret) is None:
        raise HTTPException(404, _GONE)
    said = {"error": "access_denied"}
    if answer.allow:
        said = {"code": await _given(services, asked, session, caller, answer)}
    base = public_base(request, services.settings.service)
    return ConsentRedirect(redirect=construct_redirect_uri(asked.redirect_uri, **said, state=asked.state, iss=base))


async def _given(services: Services, asked: Asked, session: Session, caller: Caller, answer: ConsentDecision) -> str:
    return await services.authorizations.give(
        Given(
            asked=asked,
            kind=session.kind,
            subject=session.subject,
            by=caller.id,
            organization=caller.organization,
            project=caller.project.id,
            role=answer.role,
            everywhere=answer.everywhere,
        )
    )


def _roles(asked: Asked, caller: Caller) -> list[Role]:
    return [role for role in ROLES[ROLES.index(asked.role) :] if may_hand_out(caller.role, role)]


def _goes_to(asked: Asked) -> str:
    parts = urlsplit(asked.redirect_uri)
    return parts.hostname if parts.scheme in ("http", "https") and parts.hostname else f"{parts.scheme}:"
