"""The OAuth 2.1 endpoints that programs speak with, and the documents that tell where they are (RFC 8414, RFC 9728).

What they take and answer is the business of the `mcp` SDK; paths are what the documents say.
"""

from __future__ import annotations

from typing import Final

from fastapi import HTTPException
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.revoke import RevocationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.json_response import PydanticJSONResponse
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.routes import cors_middleware
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthMetadata
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serve_app.accounts.throttle import TooOften
from serve_app.http.oauth.provider import SCOPES, Provider
from serve_app.http.origin import public_base

_METADATA: Final = "/.well-known/oauth-authorization-server"
_AUTHORIZE: Final = "/oauth/authorize"
_TOKEN: Final = "/oauth/token"
_REGISTER: Final = "/oauth/register"
_REVOKE: Final = "/oauth/revoke"
PATHS: Final = frozenset((_AUTHORIZE, _TOKEN, _REGISTER, _REVOKE))
"""What takes bodies, which are read whole by the event loop."""
_SECRETS: Final = ["none", "client_secret_post", "client_secret_basic"]


def oauth_routes() -> list[Route]:
    """Scripts of other origins may use all but the one that people are sent to."""
    return [
        Route(_METADATA, cors_middleware(_metadata, ["GET", "OPTIONS"]), methods=["GET", "OPTIONS"]),
        Route(_AUTHORIZE, _authorize, methods=["GET", "POST"]),
        Route(_TOKEN, cors_middleware(_token, ["POST", "OPTIONS"]), methods=["POST", "OPTIONS"]),
        Route(_REGISTER, cors_middleware(_register, ["POST", "OPTIONS"]), methods=["POST", "OPTIONS"]),
        Route(_REVOKE, cors_middleware(_revoke, ["POST", "OPTIONS"]), methods=["POST", "OPTIONS"]),
    ]


async def _metadata(request: Request) -> Response:
    base = public_base(request, request.app.state.services.settings.service)
    told = {
        "issuer": base,
        "authorization_endpoint": base + _AUTHORIZE,
        "token_endpoint": base + _TOKEN,
        "registration_endpoint": base + _REGISTER,
        "revocation_endpoint": base + _REVOKE,
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": _SECRETS,
        "revocation_endpoint_auth_methods_supported": _SECRETS,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
    return PydanticJSONResponse(OAuthMetadata.model_validate(told))


async def _authorize(request: Request) -> Response:
    return await AuthorizationHandler(Provider(request)).handle(request)


async def _token(request: Request) -> Response:
    provider = Provider(request)
    return await TokenHandler(provider, ClientAuthenticator(provider)).handle(request)


async def _register(request: Request) -> Response:
    options = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES)
    try:
        return await RegistrationHandler(Provider(request), options).handle(request)
    except TooOften as refusal:
        raise HTTPException(429, "Too many registrations", {"Retry-After": str(refusal.retry_s)}) from None


async def _revoke(request: Request) -> Response:
    provider = Provider(request)
    return await RevocationHandler(provider, ClientAuthenticator(provider)).handle(request)
