"""OAuth 2.1 authorization server: endpoints, metadata (RFC 8414, RFC 9728), consent, grants.

What they take and answer is the business of the `mcp` SDK; paths are what the documents say.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Request, Response
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.revoke import RevocationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.json_response import PydanticJSONResponse
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import cors_middleware
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ConfigDict, Field
from starlette.routing import Route

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.attempt_limiter import TooOften
from serve_app.accounts.oauth import (
    ACCESS_S,
    LARGEST_REGISTRATION,
    ROLES,
    Authorization,
    AuthorizationRequest,
    CodeGrant,
    Tokens,
)
from serve_app.accounts.roles import Permission, Role, may_hand_out
from serve_app.accounts.sessions import Session
from serve_app.api.auth import MCP, RESOURCE_METADATA, AccountReader, check_origin, session_secret
from serve_app.api.bodies import JsonRoute
from serve_app.api.hosts import client_address, public_base
from serve_app.api.routes.schemas import ErrorResponse, errors
from serve_app.api.services import Deps, Services
from serve_app.config.sections import is_loopback

SCOPES: Final = [role.value for role in ROLES]
_EDITORS: Final = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf", "zed"})
"""Schemes of installed clients without a dot, by which others are told from those that mean something to browsers."""
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
        registration = await self._services.auth.oauth_clients.find(client_id)
        return None if registration is None else OAuthClientInformationFull.model_validate_json(registration)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Raises RegistrationError, or TooOften."""
        for uri in client_info.redirect_uris or ():
            _check_redirect(str(uri))
        registration = client_info.model_dump_json(exclude_none=True)
        if len(registration) > LARGEST_REGISTRATION:
            raise RegistrationError("invalid_client_metadata", f"more than {LARGEST_REGISTRATION} characters")
        await self._services.auth.oauth_clients.register(client_info.client_id, registration, self._address)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Where a person answers. The question is behind the #, which browsers don't send along: it is in no log."""
        if len(params.state or "") > _STATE_CHARS or not _CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", f"state has up to {_STATE_CHARS} characters, code_challenge 43")
        if params.resource is not None and params.resource.rstrip("/") not in (self._base, self._base + MCP):
            raise AuthorizeError("invalid_request", "resource names another service")
        request = AuthorizationRequest(
            client_id=client.client_id,
            client_name=_plain(client.client_name) or "A client without a name",
            redirect_uri=str(params.redirect_uri),
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            challenge=params.code_challenge,
            state=params.state,
            role=next((role for role in ROLES if not params.scopes or role.value in params.scopes), Role.VIEWER),
            resource=params.resource,
        )
        try:
            return f"/consent#{await self._services.auth.authorizations.request_consent(request, self._address)}"
        except TooOften as refusal:
            raise AuthorizeError("temporarily_unavailable", str(refusal)) from None

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        grant = await self._services.auth.authorizations.find_grant(authorization_code)
        return None if grant is None else _code(authorization_code, grant)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        tokens = await self._services.auth.authorizations.issue_tokens(authorization_code.code)
        if tokens is None:  # another request was faster
            raise TokenError("invalid_grant", "authorization code does not exist")
        await self._services.auth.oauth_clients.mark_used(client.client_id)
        return _token_response(tokens)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        authorization = await self._services.auth.authorizations.refreshable(refresh_token)
        if authorization is None:
            return None
        request = authorization.grant.request
        return RefreshToken(token=refresh_token, client_id=request.client_id, scopes=_scopes(authorization.grant))

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        tokens = await self._services.auth.authorizations.refresh(refresh_token.token)
        if tokens is None:
            raise TokenError("invalid_grant", "refresh token does not exist")
        await self._services.auth.oauth_clients.mark_used(client.client_id)
        return _token_response(tokens)

    async def load_access_token(self, token: str) -> AccessToken | None:
        authorization = await self._services.auth.authorizations.find_by_token(token)
        return None if authorization is None else _access(token, authorization)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """With all others of its authorization."""
        authorizations = self._services.auth.authorizations
        authorization = await authorizations.find_by_token(token.token) or await authorizations.refreshable(token.token)
        if authorization is not None:
            await authorizations.end(authorization, authorization.grant.request.client_name)


class ProjectToken(OAuthToken):
    """Says whose it is, too, beside what RFC 6749 asks for."""

    organization: str
    project: str


def _token_response(tokens: Tokens) -> ProjectToken:
    grant = tokens.authorization.grant
    return ProjectToken(
        access_token=tokens.access,
        expires_in=ACCESS_S,
        refresh_token=tokens.refresh,
        scope=" ".join(_scopes(grant)),
        organization=grant.organization,
        project=grant.project,
    )


def _code(code: str, grant: CodeGrant) -> AuthorizationCode:
    request = grant.request
    return AuthorizationCode(
        code=code,
        scopes=_scopes(grant),
        expires_at=float("inf"),  # it goes by itself
        client_id=request.client_id,
        code_challenge=request.challenge,
        redirect_uri=AnyUrl(request.redirect_uri),
        redirect_uri_provided_explicitly=request.redirect_uri_provided_explicitly,
        resource=request.resource,
    )


def _access(token: str, authorization: Authorization) -> AccessToken:
    grant = authorization.grant
    return AccessToken(
        token=token, client_id=grant.request.client_id, scopes=_scopes(grant), resource=grant.request.resource
    )


def _scopes(grant: CodeGrant) -> list[str]:
    return [grant.role.value]


def _check_redirect(uri: str) -> None:
    """Raises RegistrationError where codes would go to whoever listens, or a browser would run what it is sent to."""
    parts = urlsplit(uri)
    own = "." in parts.scheme or parts.scheme in _EDITORS  # RFC 8252, 7.1
    allowed = parts.scheme == "https" or own or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not allowed or parts.fragment:
        raise RegistrationError(
            "invalid_redirect_uri", "https, http on loopback, or a scheme of the client's own like com.example.app"
        )


def _plain(name: str | None) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in name or "").split())[:_NAME_CHARS]


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
    metadata = {
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
    return PydanticJSONResponse(OAuthMetadata.model_validate(metadata))


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


router = APIRouter(prefix="/v1", tags=["session"], route_class=JsonRoute)


class AuthorizationView(BaseModel):
    id: str
    client: str
    by: str = Field(description="Who let it in")
    project: str
    everywhere: bool = Field(description="In the organization's other projects, too")
    role: Role
    created: float = Field(description="Epoch seconds")


class AuthorizationList(BaseModel):
    authorizations: list[AuthorizationView]


@router.get("/authorizations", responses=errors(403, 503))
async def list_authorizations(services: Deps, caller: AccountReader) -> AuthorizationList:
    """Those that the caller gave; all of the organization, for whoever manages its members."""
    return AuthorizationList(authorizations=[_view(each) for each in await _visible(services, caller)])


@router.delete("/authorizations/{authorization_id}", status_code=204, responses=errors(403, 404, 503))
async def revoke_authorization(
    services: Deps, caller: AccountReader, authorization_id: Annotated[str, Path(max_length=64)]
) -> None:
    """Revokes the grant, within 10 s everywhere."""
    for each in await _visible(services, caller):
        if each.id == authorization_id:
            await services.auth.authorizations.end(each, caller.id)
            return
    raise HTTPException(404, "No such authorization")


async def _visible(services: Deps, caller: Caller) -> list[Authorization]:
    authorizations = await services.auth.authorizations.list(caller.organization)
    return [each for each in authorizations if caller.may(Permission.MANAGE_MEMBERS) or each.grant.by == caller.id]


def _view(authorization: Authorization) -> AuthorizationView:
    grant = authorization.grant
    return AuthorizationView(
        id=authorization.id,
        client=grant.request.client_name,
        by=grant.by,
        project=grant.project,
        everywhere=grant.everywhere,
        role=grant.role,
        created=authorization.created,
    )


_Secret = Annotated[str, Header(alias="x-secret", max_length=64, description="As behind the # of the page's address")]
"""In no address: proxies log those."""
_GONE = "This request was already answered or has expired. Start again in the program"


class ConsentRequest(BaseModel):
    client: str = Field(description="As it calls itself")
    goes_to: str = Field(description="Where the answer is sent: a host, or the scheme of an installed client")
    roles: list[Role] = Field(description="What it may be here; the first is the most that it asks for")


class ConsentDecision(BaseModel):
    model_config = ConfigDict(extra="forbid")

    allow: bool
    project: str | None = Field(default=None, max_length=64, description="To allow it: what the person was shown")
    role: Role = Role.DEVELOPER
    everywhere: bool = Field(default=False, description="In the organization's other projects, too")


class ConsentRedirect(BaseModel):
    redirect: str = Field(description="Where the browser goes on")


async def _require_session(request: Request, services: Deps) -> tuple[Session, Caller]:
    """A person at a browser: neither keys nor clients authorize clients."""
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    caller = None if secret is None else await services.auth.session_resolver.caller(secret)
    if session is None or caller is None:
        raise HTTPException(403, "Sign in first")
    check_origin(request, services.settings.service)
    return session, caller


_SessionAndCaller = Annotated[tuple[Session, Caller], Depends(_require_session)]


@router.get("/consent", responses=errors(403, 404, 503))
async def get_consent_request(services: Deps, session_and_caller: _SessionAndCaller, secret: _Secret) -> ConsentRequest:
    authorization_request = await services.auth.authorizations.find_request(secret)
    if authorization_request is None:
        raise HTTPException(404, _GONE)
    _, caller = session_and_caller
    return ConsentRequest(
        client=authorization_request.client_name,
        goes_to=_redirect_target(authorization_request),
        roles=_roles(authorization_request, caller),
    )


@router.post("/consent", responses=errors(403, 404, 409, 503))
async def answer_consent_request(
    request: Request, services: Deps, session_and_caller: _SessionAndCaller, secret: _Secret, answer: ConsentDecision
) -> ConsentRedirect:
    """Authorizes the client for the project of the session, or refuses it, and says where to go on."""
    session, caller = session_and_caller
    authorization_request = await services.auth.authorizations.find_request(secret)
    if authorization_request is None:
        raise HTTPException(404, _GONE)
    if answer.allow and answer.project != caller.project.id:
        raise HTTPException(409, f"You are in the project {caller.project.id} now: look at the question again")
    if answer.allow and answer.role not in _roles(authorization_request, caller):
        raise HTTPException(403, f"Not allowed: you can't make this client a {answer.role.value}")
    if await services.auth.authorizations.take_request(secret) is None:
        raise HTTPException(404, _GONE)
    params = {"error": "access_denied"}
    if answer.allow:
        params = {"code": await _issue_code(services, authorization_request, session, caller, answer)}
    base = public_base(request, services.settings.service)
    return ConsentRedirect(
        redirect=construct_redirect_uri(
            authorization_request.redirect_uri, **params, state=authorization_request.state, iss=base
        )
    )


async def _issue_code(
    services: Services, request: AuthorizationRequest, session: Session, caller: Caller, answer: ConsentDecision
) -> str:
    return await services.auth.authorizations.issue_code(
        CodeGrant(
            request=request,
            kind=session.kind,
            subject=session.subject,
            by=caller.id,
            organization=caller.organization,
            project=caller.project.id,
            role=answer.role,
            everywhere=answer.everywhere,
        )
    )


def _roles(request: AuthorizationRequest, caller: Caller) -> list[Role]:
    return [role for role in ROLES[ROLES.index(request.role) :] if may_hand_out(caller.role, role)]


def _redirect_target(request: AuthorizationRequest) -> str:
    parts = urlsplit(request.redirect_uri)
    return parts.hostname if parts.scheme in ("http", "https") and parts.hostname else f"{parts.scheme}:"


metadata_router = APIRouter(tags=["account"])


class ProtectedResource(BaseModel):
    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str] = SCOPES
    bearer_methods_supported: list[str] = ["header"]
    resource_name: str = "gen-serve"


@metadata_router.get(
    RESOURCE_METADATA, responses={404: {"model": ErrorResponse, "description": "Only keys are accepted here"}}
)
async def get_protected_resource(request: Request, response: Response, services: Deps) -> ProtectedResource:
    """Whose tokens are accepted here. 404 where only keys are."""
    return _protected_resource(request, response, services, "")


@metadata_router.get(RESOURCE_METADATA + MCP, include_in_schema=False)
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
