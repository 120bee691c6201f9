"""Authorization endpoint (RFC 6749) and the consent that a person gives on its page."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.provider import construct_redirect_uri
from pydantic import BaseModel, ConfigDict, Field

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.oauth import ROLES, AuthorizationRequest, CodeGrant
from serve_app.accounts.roles import Role, may_grant
from serve_app.accounts.sessions import Session
from serve_app.api.auth import check_origin, session_secret
from serve_app.api.bodies import JsonRoute
from serve_app.api.hosts import public_base
from serve_app.api.routes.oauth.server import AuthorizationServer
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps

router = APIRouter(prefix="/v1", tags=["session"], route_class=JsonRoute)

_Secret = Annotated[str, Header(alias="x-secret", max_length=64, description="As behind the # of the page's address")]
"""Secret of a consent request. It is no part of the URL, which proxies log: a reader could consent."""
_GONE: Final = "This request was already answered or has expired. Start again in the program"


async def request_authorization(request: Request) -> Response:
    return await AuthorizationHandler(AuthorizationServer(request)).handle(request)


class ConsentRequest(BaseModel):
    client: str = Field(description="Name that the client gave itself")
    goes_to: str = Field(description="Where the answer is sent: a host, or the scheme of an installed client")
    roles: list[Role] = Field(description="Roles that the person may grant; the first is the one that it asks for")


class ConsentDecision(BaseModel):
    model_config = ConfigDict(extra="forbid")

    allow: bool
    project: str | None = Field(default=None, max_length=64, description="To allow it: the project that was shown")
    role: Role = Role.DEVELOPER
    everywhere: bool = Field(default=False, description="In the organization's other projects, too")


class ConsentRedirect(BaseModel):
    redirect: str = Field(description="Where the browser goes on")


async def _require_session(request: Request, services: Deps) -> tuple[Session, Caller]:
    """Returns the session of a person at a browser. Neither keys nor clients may authorize clients."""
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    caller = None if secret is None else await services.auth.session_resolver.caller(secret)
    if session is None or caller is None:
        raise HTTPException(403, "Sign in first")
    check_origin(request, services.settings.service)
    return session, caller


_SessionAndCaller = Annotated[tuple[Session, Caller], Depends(_require_session)]


@router.get("/consent", responses=errors(403, 404, 503))
async def get_consent_request(services: Deps, session_and_caller: _SessionAndCaller, secret: _Secret) -> ConsentRequest:
    authorization_request = await services.auth.authorizations.find_request(secret)
    if authorization_request is None:
        raise HTTPException(404, _GONE)
    _, caller = session_and_caller
    target = urlsplit(authorization_request.redirect_uri)
    is_web = target.scheme in ("http", "https") and target.hostname
    return ConsentRequest(
        client=authorization_request.client_name,
        goes_to=str(target.hostname) if is_web else f"{target.scheme}:",
        roles=_grantable_roles(authorization_request, caller),
    )


@router.post("/consent", responses=errors(403, 404, 409, 503))
async def answer_consent_request(
    request: Request, services: Deps, session_and_caller: _SessionAndCaller, secret: _Secret, answer: ConsentDecision
) -> ConsentRedirect:
    """Authorizes the client for the session's project, or refuses it, and returns the URL of the client."""
    session, caller = session_and_caller
    authorization_request = await services.auth.authorizations.find_request(secret)
    if authorization_request is None:
        raise HTTPException(404, _GONE)
    if answer.allow and answer.project != caller.project.id:
        raise HTTPException(409, f"You are in the project {caller.project.id} now: look at the question again")
    if answer.allow and answer.role not in _grantable_roles(authorization_request, caller):
        raise HTTPException(403, f"Not allowed: you can't make this client a {answer.role.value}")
    if await services.auth.authorizations.take_request(secret) is None:
        raise HTTPException(404, _GONE)
    params = {"error": "access_denied"}
    if answer.allow:
        grant = CodeGrant(
            request=authorization_request,
            subject_type=session.subject_type,
            subject=session.subject,
            by=caller.id,
            organization=caller.organization,
            project=caller.project.id,
            role=answer.role,
            everywhere=answer.everywhere,
        )
        params = {"code": await services.auth.authorizations.issue_code(grant)}
    base = public_base(request, services.settings.service)
    return ConsentRedirect(
        redirect=construct_redirect_uri(
            authorization_request.redirect_uri, **params, state=authorization_request.state, iss=base
        )
    )


def _grantable_roles(request: AuthorizationRequest, caller: Caller) -> list[Role]:
    return [role for role in ROLES[ROLES.index(request.role) :] if may_grant(caller.role, role)]
