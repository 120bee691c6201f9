"""This service as an OAuth 2.1 authorization server: what the protocol, which is the `mcp` SDK's, asks it for."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

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
from starlette.requests import Request

from serve_app.accounts import programs
from serve_app.accounts.authorizations import ACCESS_S, ROLES, Asked, Authorization, Given, Tokens
from serve_app.accounts.roles import Role
from serve_app.accounts.throttle import TooOften
from serve_app.config.addresses import is_loopback
from serve_app.http.auth import MCP
from serve_app.http.origin import client_address, public_base
from serve_app.http.services import Services

SCOPES: Final = [role.value for role in ROLES]
_EDITORS: Final = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf", "zed"})
"""Schemes of installed programs without a dot, by which others are told from those that mean something to browsers."""
_CHALLENGE: Final = re.compile("[A-Za-z0-9_-]{43}")
_STATE_CHARS: Final = 1024
_NAME_CHARS: Final = 60


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Of one request."""

    def __init__(self, request: Request) -> None:
        self._services: Services = request.app.state.services
        self._base = public_base(request, self._services.settings.service)
        self._address = client_address(request, self._services.settings.service)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        registration = await self._services.programs.find(client_id)
        return None if registration is None else OAuthClientInformationFull.model_validate_json(registration)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Raises RegistrationError, or TooOften."""
        for uri in client_info.redirect_uris or ():
            _check_redirect(str(uri))
        registration = client_info.model_dump_json(exclude_none=True)
        if len(registration) > programs.LARGEST:
            raise RegistrationError("invalid_client_metadata", f"more than {programs.LARGEST} characters")
        await self._services.programs.register(client_info.client_id, registration, self._address)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Where a person answers. The question is behind the #, which browsers don't send along: it is in no log."""
        if len(params.state or "") > _STATE_CHARS or not _CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", f"state has up to {_STATE_CHARS} characters, code_challenge 43")
        if params.resource is not None and params.resource.rstrip("/") not in (self._base, self._base + MCP):
            raise AuthorizeError("invalid_request", "resource names another service")
        asked = Asked(
            program=client.client_id,
            name=_plain(client.client_name) or "A program without a name",
            redirect_uri=str(params.redirect_uri),
            redirect_uri_said=params.redirect_uri_provided_explicitly,
            challenge=params.code_challenge,
            state=params.state,
            role=next((role for role in ROLES if not params.scopes or role.value in params.scopes), Role.VIEWER),
            resource=params.resource,
        )
        try:
            return f"/consent#{await self._services.authorizations.ask(asked, self._address)}"
        except TooOften as refusal:
            raise AuthorizeError("temporarily_unavailable", str(refusal)) from None

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        given = await self._services.authorizations.given(authorization_code)
        return None if given is None else _code(authorization_code, given)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        tokens = await self._services.authorizations.redeem(authorization_code.code)
        if tokens is None:  # another request was faster
            raise TokenError("invalid_grant", "authorization code does not exist")
        await self._services.programs.used(client.client_id)
        return _told(tokens)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        authorization = await self._services.authorizations.refreshable(refresh_token)
        if authorization is None:
            return None
        asked = authorization.given.asked
        return RefreshToken(token=refresh_token, client_id=asked.program, scopes=_scopes(authorization.given))

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        tokens = await self._services.authorizations.refresh(refresh_token.token)
        if tokens is None:
            raise TokenError("invalid_grant", "refresh token does not exist")
        await self._services.programs.used(client.client_id)
        return _told(tokens)

    async def load_access_token(self, token: str) -> AccessToken | None:
        authorization = await self._services.authorizations.of_token(token)
        return None if authorization is None else _access(token, authorization)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """With all others of its authorization."""
        found = self._services.authorizations
        authorization = await found.of_token(token.token) or await found.refreshable(token.token)
        if authorization is not None:
            await found.end(authorization, authorization.given.asked.name)


class ToldToken(OAuthToken):
    """Says whose it is, too, beside what RFC 6749 asks for."""

    organization: str
    project: str


def _told(tokens: Tokens) -> ToldToken:
    given = tokens.authorization.given
    return ToldToken(
        access_token=tokens.access,
        expires_in=ACCESS_S,
        refresh_token=tokens.refresh,
        scope=" ".join(_scopes(given)),
        organization=given.organization,
        project=given.project,
    )


def _code(code: str, given: Given) -> AuthorizationCode:
    asked = given.asked
    return AuthorizationCode(
        code=code,
        scopes=_scopes(given),
        expires_at=float("inf"),  # it goes by itself
        client_id=asked.program,
        code_challenge=asked.challenge,
        redirect_uri=AnyUrl(asked.redirect_uri),
        redirect_uri_provided_explicitly=asked.redirect_uri_said,
        resource=asked.resource,
    )


def _access(token: str, authorization: Authorization) -> AccessToken:
    given = authorization.given
    return AccessToken(token=token, client_id=given.asked.program, scopes=_scopes(given), resource=given.asked.resource)


def _scopes(given: Given) -> list[str]:
    return [given.role.value]


def _check_redirect(uri: str) -> None:
    """Raises RegistrationError where codes would go to whoever listens, or a browser would run what it is sent to."""
    parts = urlsplit(uri)
    own = "." in parts.scheme or parts.scheme in _EDITORS  # RFC 8252, 7.1
    known = parts.scheme == "https" or own or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not known or parts.fragment:
        raise RegistrationError(
            "invalid_redirect_uri", "https, http on loopback, or a scheme of the program's own like com.example.app"
        )


def _plain(name: str | None) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in name or "").split())[:_NAME_CHARS]
