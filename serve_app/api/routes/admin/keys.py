"""Admin routes of API keys. Developers manage the keys of their project, administrators those of all projects."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, Field

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.audit import IndexFull
from serve_app.accounts.keys import ApiKey
from serve_app.accounts.projects import Project
from serve_app.accounts.roles import Permission, Role, may_grant
from serve_app.api.auth import AccountReader, KeyMaker
from serve_app.api.bodies import JsonRoute
from serve_app.api.routes.admin.scope import LATER, project_within
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps
from serve_app.submission.errors import Invalid

router = APIRouter(prefix="/keys", route_class=JsonRoute)

_MAX_EXPIRES = 4_102_444_800.0
"""2100-01-01."""


class CreateKeyRequest(BaseModel):
    name: str = Field(min_length=1, max_length=100, description="Purpose of the key")
    project: str | None = Field(default=None, max_length=64, description="By default the caller's project")
    role: Role = Role.DEVELOPER
    expires: float | None = Field(
        default=None,
        le=_MAX_EXPIRES,
        allow_inf_nan=False,
        description="Epoch seconds; null for no expiry",
    )


class Key(BaseModel):
    id: str
    name: str
    project: str
    role: Role
    hint: str = Field(description="Start of the key")
    created: float
    expires: float | None
    used: float | None = Field(description="Last use, epoch seconds, up to a few seconds late; null if never used")


class CreatedApiKey(Key):
    key: str = Field(description="The key. It is not stored and can't be shown again")


class KeyList(BaseModel):
    keys: list[Key]


@router.get("", responses=errors(403, 404, 503))
async def list_keys(
    services: Deps, caller: AccountReader, project: Annotated[str | None, Query(max_length=64)] = None
) -> KeyList:
    """Lists the valid keys of a project, oldest first."""
    scope = await project_within(services, caller, project or caller.project.id)
    return KeyList(keys=[_view(key) for key in await services.accounts.keys.list(scope.id)])


@router.post("", status_code=201, responses=errors(403, 404, 429, 503))
async def create_key(services: Deps, caller: KeyMaker, new: CreateKeyRequest) -> CreatedApiKey:
    """Creates a key whose role has no more permissions than the caller's."""
    project = await project_within(services, caller, new.project or caller.project.id)
    _check_reach(caller, project)
    if not may_grant(caller.role, new.role):
        raise HTTPException(403, f"Not allowed: a {caller.role} can't create keys of the role {new.role}")
    if new.expires is not None and new.expires <= time.time():
        raise Invalid(["body", "expires"], "must be in the future, in epoch seconds")
    limit = None if caller.may(Permission.OPERATE) else services.settings.accounts.max_keys
    try:
        key, secret = await services.accounts.keys.create(
            new.name,
            project.id,
            role=new.role,
            expires=new.expires,
            organization=project.organization,
            actor=caller.id,
            max_keys=limit,
        )
    except IndexFull:
        detail = f"Too many keys: this project may have {limit}; revoke one first"
        raise HTTPException(429, detail, LATER) from None
    return CreatedApiKey(**_view(key).model_dump(), key=secret)


@router.delete("/{key_id}", status_code=204, responses=errors(403, 404, 503))
async def revoke_key(services: Deps, caller: KeyMaker, key_id: Annotated[str, Path(max_length=64)]) -> None:
    """Revokes a key. It stops working within 10 s. Its tasks continue."""
    key = await services.accounts.keys.get(key_id)
    if key is None:
        raise HTTPException(404, "There is no such key")
    try:
        project = await project_within(services, caller, key.project)
    except HTTPException:
        raise HTTPException(404, "There is no such key") from None
    _check_reach(caller, project)
    if not may_grant(caller.role, key.role):
        raise HTTPException(403, f"Not allowed: a {caller.role} can't revoke keys of the role {key.role}")
    await services.accounts.keys.revoke(key_id, organization=project.organization, actor=caller.id)
    await services.auth.membership_revocation.key(key_id, project.organization)


def _check_reach(caller: Caller, project: Project) -> None:
    if project.id != caller.project.id and not caller.may(Permission.MANAGE_KEYS):
        raise HTTPException(403, f"Not allowed: this needs the permission to {Permission.MANAGE_KEYS}")


def _view(key: ApiKey) -> Key:
    return Key.model_validate(key, from_attributes=True)
