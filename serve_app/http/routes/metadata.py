"""What tools need to know to sign in: protected-resource metadata (RFC 9728)."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel

from serve_app.http.auth import RESOURCE_METADATA
from serve_app.http.origin import public_base
from serve_app.http.routes.schemas import Problem
from serve_app.http.services import Deps

router = APIRouter(tags=["account"])


class ProtectedResource(BaseModel):
    resource: str
    authorization_servers: list[str]
    bearer_methods_supported: list[str] = ["header"]
    resource_name: str = "gen-serve"


@router.get(RESOURCE_METADATA, responses={404: {"model": Problem, "description": "Only keys are accepted here"}})
async def protected_resource(request: Request, services: Deps) -> ProtectedResource:
    """Whose tokens are accepted here. 404 where only keys are."""
    if not services.tokens.issuers:
        raise HTTPException(404, "Not Found")
    base = public_base(request, services.settings.service)
    return ProtectedResource(resource=base, authorization_servers=services.tokens.issuers)
