"""OAuth clients: registration (RFC 7591), and the authorizations that people gave them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.settings import ClientRegistrationOptions
from pydantic import BaseModel, Field

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.attempt_limiter import TooManyAttempts
from serve_app.accounts.oauth import Authorization
from serve_app.accounts.roles import Permission, Role
from serve_app.api.auth import AccountReader
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.oauth.metadata import SCOPES
from serve_app.api.routes.oauth.server import AuthorizationServer
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps

router = APIRouter(prefix="/v1", tags=["session"], route_class=JsonRoute)


async def register_client(request: Request) -> Response:
    options = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES)
    try:
        return await RegistrationHandler(AuthorizationServer(request), options).handle(request)
    except TooManyAttempts as refusal:
        raise HTTPException(429, "Too many registrations", {"Retry-After": str(refusal.retry_s)}) from None


class AuthorizationView(BaseModel):
    id: str
    client: str
    by: str = Field(description="Person who let the client in")
    project: str
    everywhere: bool = Field(description="In the organization's other projects, too")
    role: Role
    created: float = Field(description="Epoch seconds")


class AuthorizationList(BaseModel):
    authorizations: list[AuthorizationView]


@router.get("/authorizations", responses=errors(403, 503))
async def list_authorizations(services: Deps, caller: AccountReader) -> AuthorizationList:
    """Returns the authorizations that the caller gave. Callers who manage members get those of the organization."""
    return AuthorizationList(authorizations=[_view(each) for each in await _visible(services, caller)])


@router.delete("/authorizations/{authorization_id}", status_code=204, responses=errors(403, 404, 503))
async def revoke_authorization(
    services: Deps, caller: AccountReader, authorization_id: Annotated[str, Path(max_length=64)]
) -> None:
    """Revokes an authorization, within 10 s everywhere."""
    for each in await _visible(services, caller):
        if each.id == authorization_id:
            await services.auth.authorizations.end(each, caller.id)
            return
    raise HTTPException(404, "No such authorization")


async def _visible(services: Deps, caller: Caller) -> list[Authorization]:
    authorizations = await services.auth.authorizations.list(caller.organization)
    return [each for each in authorizations if caller.may(Permission.MANAGE_MEMBERS) or each.grant.by == caller.id]


def _view(authorization: Authorization) -> AuthorizationView:
    grant = authorization.grant
    return AuthorizationView(
        id=authorization.id,
        client=grant.request.client_name,
        by=grant.by,
        project=grant.project,
        everywhere=grant.everywhere,
        role=grant.role,
        created=authorization.created,
    )
