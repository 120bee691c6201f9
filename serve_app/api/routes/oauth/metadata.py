"""Metadata of the authorization server (RFC 8414) and of the protected resource (RFC 9728)."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response
from mcp.server.auth.json_response import PydanticJSONResponse
from mcp.shared.auth import OAuthMetadata
from pydantic import BaseModel

from serve_app.accounts.oauth import ROLES
from serve_app.api.auth import MCP, RESOURCE_METADATA
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import ErrorResponse
from serve_app.api.services import Deps

SCOPES: Final = [role.value for role in ROLES]
PATH: Final = "/.well-known/oauth-authorization-server"
AUTHORIZE: Final = "/oauth/authorize"
TOKEN: Final = "/oauth/token"
REGISTER: Final = "/oauth/register"
REVOKE: Final = "/oauth/revoke"
_CLIENT_AUTHENTICATION: Final = ["none", "client_secret_post", "client_secret_basic"]

router = APIRouter(tags=["account"])


async def get_metadata(request: Request) -> Response:
    base = public_base(request, request.app.state.services.settings.service)
    metadata = {
        "issuer": base,
        "authorization_endpoint": base + AUTHORIZE,
        "token_endpoint": base + TOKEN,
        "registration_endpoint": base + REGISTER,
        "revocation_endpoint": base + REVOKE,
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": _CLIENT_AUTHENTICATION,
        "revocation_endpoint_auth_methods_supported": _CLIENT_AUTHENTICATION,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
    return PydanticJSONResponse(OAuthMetadata.model_validate(metadata))


class ProtectedResource(BaseModel):
    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str] = SCOPES
    bearer_methods_supported: list[str] = ["header"]
    resource_name: str = "gen-serve"


@router.get(RESOURCE_METADATA, responses={404: {"model": ErrorResponse, "description": "Only keys are accepted here"}})
async def get_protected_resource(request: Request, response: Response, services: Deps) -> ProtectedResource:
    """Returns the issuers whose tokens are accepted; 404 if only keys are."""
    return _protected_resource(request, response, services, "")


@router.get(RESOURCE_METADATA + MCP, include_in_schema=False)
async def get_protected_mcp_resource(request: Request, response: Response, services: Deps) -> ProtectedResource:
    return _protected_resource(request, response, services, MCP)


def _protected_resource(request: Request, response: Response, services: Deps, path: str) -> ProtectedResource:
    base = public_base(request, services.settings.service)
    servers = [base] if services.settings.accounts.oauth_clients else []
    servers += services.auth.tokens.issuers
    if not servers:
        raise HTTPException(404, "Not Found")
    response.headers["Access-Control-Allow-Origin"] = "*"
    return ProtectedResource(resource=base + path, authorization_servers=servers)
