"""Authorization server behind the handlers of the `mcp` SDK."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from serve_app.accounts.attempt_limiter import TooManyAttempts
from serve_app.accounts.oauth import ACCESS_S, MAX_REGISTRATION_CHARS, ROLES, AuthorizationRequest, TokenPair
from serve_app.accounts.roles import Role
from serve_app.api.auth import MCP
from serve_app.api.hosts import client_address, public_base
from serve_app.api.services import Services
from serve_app.config.sections import is_loopback

_EDITORS: Final = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf", "zed"})
"""Schemes without a dot that belong to installed clients, unlike `javascript` or `data`."""
_CHALLENGE: Final = re.compile("[A-Za-z0-9_-]{43}")
_STATE_CHARS: Final = 1024
_NAME_CHARS: Final = 60


class ProjectToken(OAuthToken):
    organization: str
    project: str


class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Authorization server for one request."""

    def __init__(self, request: Request) -> None:
        services: Services = request.app.state.services
        self._authorizations, self._clients = services.auth.authorizations, services.auth.oauth_clients
        self._base = public_base(request, services.settings.service)
        self._address = client_address(request, services.settings.service)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        registration = await self._clients.find(client_id)
        return None if registration is None else OAuthClientInformationFull.model_validate_json(registration)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Raises RegistrationError or TooManyAttempts."""
        for uri in client_info.redirect_uris or ():
            _check_redirect(str(uri))
        registration = client_info.model_dump_json(exclude_none=True)
        if len(registration) > MAX_REGISTRATION_CHARS:
            raise RegistrationError("invalid_client_metadata", f"more than {MAX_REGISTRATION_CHARS} characters")
        await self._clients.register(client_info.client_id, registration, self._address)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Returns the page on which a person answers the request.

        The request's secret is in the fragment, which browsers don't send, so it is in no log.
        """
        if len(params.state or "") > _STATE_CHARS or not _CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", f"state has up to {_STATE_CHARS} characters, code_challenge 43")
        if params.resource is not None and params.resource.rstrip("/") not in (self._base, self._base + MCP):
            raise AuthorizeError("invalid_request", "resource names another service")
        printable = "".join(each if each.isprintable() else " " for each in client.client_name or "")
        request = AuthorizationRequest(
            client_id=client.client_id,
            client_name=" ".join(printable.split())[:_NAME_CHARS] or "A client without a name",
            redirect_uri=str(params.redirect_uri),
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            challenge=params.code_challenge,
            state=params.state,
            role=next((role for role in ROLES if not params.scopes or role.value in params.scopes), Role.VIEWER),
            resource=params.resource,
        )
        try:
            return f"/consent#{await self._authorizations.request_consent(request, self._address)}"
        except TooManyAttempts as refusal:
            raise AuthorizeError("temporarily_unavailable", str(refusal)) from None

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        grant = await self._authorizations.find_grant(authorization_code)
        if grant is None:
            return None
        request = grant.request
        return AuthorizationCode(
            code=authorization_code,
            scopes=[grant.role.value],
            expires_at=float("inf"),  # the store drops it
            client_id=request.client_id,
            code_challenge=request.challenge,
            redirect_uri=AnyUrl(request.redirect_uri),
            redirect_uri_provided_explicitly=request.redirect_uri_provided_explicitly,
            resource=request.resource,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        tokens = await self._authorizations.issue_tokens(authorization_code.code)
        if tokens is None:  # another request was faster
            raise TokenError("invalid_grant", "authorization code does not exist")
        return await self._respond(client, tokens)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        authorization = await self._authorizations.refreshable(refresh_token)
        if authorization is None:
            return None
        grant = authorization.grant
        return RefreshToken(token=refresh_token, client_id=grant.request.client_id, scopes=[grant.role.value])

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        tokens = await self._authorizations.refresh(refresh_token.token)
        if tokens is None:
            raise TokenError("invalid_grant", "refresh token does not exist")
        return await self._respond(client, tokens)

    async def _respond(self, client: OAuthClientInformationFull, tokens: TokenPair) -> ProjectToken:
        await self._clients.mark_used(client.client_id)
        grant = tokens.authorization.grant
        return ProjectToken(
            access_token=tokens.access,
            expires_in=ACCESS_S,
            refresh_token=tokens.refresh,
            scope=grant.role.value,
            organization=grant.organization,
            project=grant.project,
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        authorization = await self._authorizations.find_by_token(token)
        if authorization is None:
            return None
        request, scopes = authorization.grant.request, [authorization.grant.role.value]
        return AccessToken(token=token, client_id=request.client_id, scopes=scopes, resource=request.resource)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Revokes the token with all others of its authorization."""
        store = self._authorizations
        authorization = await store.find_by_token(token.token) or await store.refreshable(token.token)
        if authorization is not None:
            await store.end(authorization, authorization.grant.request.client_name)


def _check_redirect(uri: str) -> None:
    """Raises RegistrationError for a URI by which codes could leak, or which a browser would run."""
    parts = urlsplit(uri)
    is_private = "." in parts.scheme or parts.scheme in _EDITORS  # RFC 8252, 7.1
    allowed = parts.scheme == "https" or is_private or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not allowed or parts.fragment:
        raise RegistrationError(
            "invalid_redirect_uri", "https, http on loopback, or a scheme of the client's own like com.example.app"
        )
