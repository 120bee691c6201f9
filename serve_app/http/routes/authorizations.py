"""Programs that people let in, and how they are shut out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from pydantic import BaseModel, Field

from serve_app.accounts.authorizations import Authorization
from serve_app.accounts.callers import Caller
from serve_app.accounts.roles import Permission, Role
from serve_app.http.auth import AccountReader
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps

router = APIRouter(prefix="/v1/authorizations", tags=["session"])


class AuthorizationView(BaseModel):
    id: str
    program: str
    by: str = Field(description="Who let it in")
    project: str
    everywhere: bool = Field(description="In the organization's other projects, too")
    role: Role
    created: float = Field(description="Epoch seconds")


class AuthorizationList(BaseModel):
    authorizations: list[AuthorizationView]


@router.get("", responses=errors(403, 503))
async def list_authorizations(services: Deps, caller: AccountReader) -> AuthorizationList:
    """Those that the caller gave; all of the organization, for whoever manages its members."""
    return AuthorizationList(authorizations=[_view(each) for each in await _visible(services, caller)])


@router.delete("/{authorization_id}", status_code=204, responses=errors(403, 404, 503))
async def revoke_authorization(
    services: Deps, caller: AccountReader, authorization_id: Annotated[str, Path(max_length=64)]
) -> None:
    """Shuts the program out, within 10 s everywhere."""
    for each in await _visible(services, caller):
        if each.id == authorization_id:
            await services.authorizations.end(each, caller.id)
            return
    raise HTTPException(404, "No such authorization")


async def _visible(services: Deps, caller: Caller) -> list[Authorization]:
    found = await services.authorizations.list(caller.organization)
    return [each for each in found if caller.may(Permission.MANAGE_MEMBERS) or each.given.by == caller.id]


def _view(authorization: Authorization) -> AuthorizationView:
    given = authorization.given
    return AuthorizationView(
        id=authorization.id,
        program=given.asked.name,
        by=given.by,
        project=given.project,
        everywhere=given.everywhere,
        role=given.role,
        created=authorization.created,
    )
