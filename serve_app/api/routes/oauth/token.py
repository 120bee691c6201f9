"""Token and revocation endpoints (RFC 6749, RFC 7009)."""

from __future__ import annotations

from fastapi import Request, Response
from mcp.server.auth.handlers.revoke import RevocationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import ClientAuthenticator

from serve_app.api.routes.oauth.server import AuthorizationServer


async def issue_token(request: Request) -> Response:
    server = AuthorizationServer(request)
    return await TokenHandler(server, ClientAuthenticator(server)).handle(request)


async def revoke_token(request: Request) -> Response:
    server = AuthorizationServer(request)
    return await RevocationHandler(server, ClientAuthenticator(server)).handle(request)
