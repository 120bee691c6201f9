"""Who is asking: the `x-key` header."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Security
from fastapi.security import APIKeyHeader

from serve_app.accounts.keys import ApiKey
from serve_app.services import Deps, Services

_header = APIKeyHeader(
    name="x-key", auto_error=False, description="An API key, `gen_…`. `gen-serve keys create` makes one."
)


async def authenticated(services: Services, secret: str | None) -> ApiKey:
    """The key behind a secret. Raises the HTTPException that a client without a valid one is to see."""
    if not secret:
        raise HTTPException(403, "Not authenticated")
    key = await services.keys.authenticate(secret)
    if key is None:
        raise HTTPException(403, "Not authenticated - Invalid Authentication")
    return key


async def _caller(services: Deps, secret: Annotated[str | None, Security(_header)]) -> ApiKey:
    return await authenticated(services, secret)


Caller = Annotated[ApiKey, Depends(_caller)]
