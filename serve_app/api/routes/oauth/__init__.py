"""OAuth 2.1 authorization server. The `mcp` SDK parses and answers requests; paths are those of the specifications."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from mcp.server.auth.routes import cors_middleware
from starlette.routing import Route

from serve_app.api.routes.oauth import authorize, clients, metadata, token

PATHS: Final = frozenset((metadata.AUTHORIZE, metadata.TOKEN, metadata.REGISTER, metadata.REVOKE))
"""Paths that read a small body from any client, with or without a key."""

router = APIRouter()
router.include_router(clients.router)
router.include_router(authorize.router)
metadata_router = metadata.router


def oauth_routes() -> list[Route]:
    """Returns the routes of the SDK's handlers. Scripts of other origins may call all but the one that people open."""
    shared = (
        (metadata.PATH, metadata.get_metadata, ["GET", "OPTIONS"]),
        (metadata.TOKEN, token.issue_token, ["POST", "OPTIONS"]),
        (metadata.REGISTER, clients.register_client, ["POST", "OPTIONS"]),
        (metadata.REVOKE, token.revoke_token, ["POST", "OPTIONS"]),
    )
    return [
        Route(metadata.AUTHORIZE, authorize.request_authorization, methods=["GET", "POST"]),
        *(Route(path, cors_middleware(handler, methods), methods=methods) for path, handler, methods in shared),
    ]
