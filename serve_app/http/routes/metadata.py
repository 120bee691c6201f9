"""What programs need to know to sign in: protected-resource metadata (RFC 9728)."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel

from serve_app.http.auth import MCP, RESOURCE_METADATA
from serve_app.http.oauth.provider import SCOPES
from serve_app.http.origin import public_base
from serve_app.http.routes.schemas import ErrorResponse
from serve_app.http.services import Deps

router = APIRouter(tags=["account"])


class ProtectedResource(BaseModel):
    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str] = SCOPES
    bearer_methods_supported: list[str] = ["header"]
    resource_name: str = "gen-serve"


@router.get(RESOURCE_METADATA, responses={404: {"model": ErrorResponse, "description": "Only keys are accepted here"}})
async def get_protected_resource(request: Request, response: Response, services: Deps) -> ProtectedResource:
    """Whose tokens are accepted here. 404 where only keys are."""
    return _told(request, response, services, "")


@router.get(RESOURCE_METADATA + MCP, include_in_schema=False)
async def protected_mcp(request: Request, response: Response, services: Deps) -> ProtectedResource:
    return _told(request, response, services, MCP)


def _told(request: Request, response: Response, services: Deps, path: str) -> ProtectedResource:
    base = public_base(request, services.settings.service)
    servers = [base] if services.settings.accounts.programs else []
    servers += services.tokens.issuers
    if not servers:
        raise HTTPException(404, "Not Found")
    response.headers["Access-Control-Allow-Origin"] = "*"
    return ProtectedResource(resource=base + path, authorization_servers=servers)
