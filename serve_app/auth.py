"""Who is asking, and whether they may: the `x-key` header."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, HTTPException, Security
from fastapi.security import APIKeyHeader

from serve_app.accounts.callers import Caller
from serve_app.accounts.roles import Permission
from serve_app.services import Deps, Services

_header = APIKeyHeader(
    name="x-key", auto_error=False, description="An API key, `gen_…`. `gen-serve keys create` makes one."
)


async def authenticated(services: Services, secret: str | None, permission: Permission) -> Caller:
    """Who is behind a secret. Raises the HTTPException that others than those with the permission are to see."""
    if not secret:
        raise HTTPException(403, "Not authenticated")
    caller = await services.callers.authenticate(secret)
    if caller is None:
        raise HTTPException(403, "Not authenticated - Invalid Authentication")
    if not caller.may(permission):
        role = caller.role.value.replace("_", " ")
        raise HTTPException(403, f"Not allowed: this needs the permission to {permission.value}; the key is a {role}'s")
    return caller


def _with(permission: Permission) -> Callable[..., Awaitable[Caller]]:
    async def caller(services: Deps, secret: Annotated[str | None, Security(_header)]) -> Caller:
        return await authenticated(services, secret, permission)

    return caller


Generator = Annotated[Caller, Depends(_with(Permission.GENERATE))]
TaskReader = Annotated[Caller, Depends(_with(Permission.READ_TASKS))]
CreditReader = Annotated[Caller, Depends(_with(Permission.READ_CREDITS))]
AccountReader = Annotated[Caller, Depends(_with(Permission.READ_ACCOUNTS))]
MoneyReader = Annotated[Caller, Depends(_with(Permission.READ_MONEY))]
LimitSetter = Annotated[Caller, Depends(_with(Permission.SET_LIMITS))]
KeyMaker = Annotated[Caller, Depends(_with(Permission.MANAGE_OWN_KEYS))]
ProjectMaker = Annotated[Caller, Depends(_with(Permission.MANAGE_PROJECTS))]
MemberMaker = Annotated[Caller, Depends(_with(Permission.MANAGE_MEMBERS))]
AuditReader = Annotated[Caller, Depends(_with(Permission.READ_AUDIT))]
Operator = Annotated[Caller, Depends(_with(Permission.OPERATE))]
