"""Authentication and authorization of requests.

A request has a key in `x-key`, a key or token in `Authorization`, or a session cookie. The first of them applies, and
the others are not read. An OAuth client may name another project of its person in `x-project`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, cookie_parser
from starlette.responses import Response

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.jwt_auth import IssuerUnreachable, TokenRefused
from serve_app.accounts.keys import KEY_PREFIX
from serve_app.accounts.oauth import TOKEN_PREFIX
from serve_app.accounts.roles import Permission
from serve_app.accounts.sessions import LIFE_S
from serve_app.api.errors import ApiError
from serve_app.api.hosts import public_base
from serve_app.api.services import Deps, Services
from serve_app.config.settings import ServiceSettings

_COOKIE: Final = "gen_session"
_HOST_COOKIE: Final = f"__Host-{_COOKIE}"
"""Cookie that browsers accept only over HTTPS and from this host itself."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def has_session(headers: Headers) -> bool:
    return not {_HOST_COOKIE, _COOKIE}.isdisjoint(cookie_parser(headers.get("cookie", "")))


def session_secret(request: HTTPConnection, settings: ServiceSettings) -> str | None:
    """Returns the cookie's secret. Over HTTPS only the host cookie counts: a sibling domain can set the other one."""
    name = _HOST_COOKIE if _is_secure(request, settings) else _COOKIE
    return cookie_parser(request.headers.get("cookie", "")).get(name) or None


def _is_secure(request: HTTPConnection, settings: ServiceSettings) -> bool:
    return public_base(request, settings).startswith("https:")


def check_origin(request: HTTPConnection, settings: ServiceSettings) -> None:
    """Raises HTTPException if another site's page, or an unknown page, requests a change."""
    if request.scope.get("method") in _READING:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site == "same-origin" or (site is None and origin == public_base(request, settings)):
        return
    raise HTTPException(
        403,
        "Session cookies are only accepted from this service's own pages; send an API key. Operators: on these pages, "
        "check service.public_url",
    )


def set_session(response: Response, secret: str, request: HTTPConnection, settings: ServiceSettings) -> None:
    secure = _is_secure(request, settings)
    response.set_cookie(
        _HOST_COOKIE if secure else _COOKIE,
        secret,
        max_age=LIFE_S,
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def drop_session(response: Response) -> None:
    response.delete_cookie(_COOKIE, httponly=True, samesite="strict")
    response.delete_cookie(_HOST_COOKIE, secure=True, httponly=True, samesite="strict")


_KEY: Final = "x-key"
_PROJECT: Final = "x-project"
_BEARER: Final = "bearer "
RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
"""Path of the metadata that names the accepted issuers (RFC 9728)."""
_KEY_HINT: Final = "Create a key at /account, or with gen-serve keys create"
MCP: Final = "/mcp"
"""Path of the Model Context Protocol."""

_CHANGES_ACCOUNTS = frozenset(
    {
        Permission.MANAGE_OWN_KEYS,
        Permission.MANAGE_PROJECTS,
        Permission.MANAGE_MEMBERS,
        Permission.SET_LIMITS,
        Permission.READ_ACCOUNTS,  # a change of several fields checks the permission of each by itself
        Permission.OPERATE,
    }
)
"""Permissions for which the cache is skipped: a caller who has just lost them could give them back to themselves."""

# For the OpenAPI document only: `_caller` reads the headers.
_key_scheme = APIKeyHeader(
    name=_KEY, auto_error=False, description="An API key, `gen_…`. `gen-serve keys create` creates one."
)
_token_scheme = HTTPBearer(
    auto_error=False,
    bearerFormat="JWT",
    description="A token of an issuer that this service knows, or an API key. `x-key` takes precedence.",
)


class NotAuthenticated(ApiError):
    """The credentials are missing or unknown. 403, not 401, as the interface demands."""

    def __init__(self, *, wrong_key: bool = False) -> None:
        if wrong_key:
            hint = f"This key is unknown, expired or revoked. {_KEY_HINT}"
            super().__init__(403, "invalid_key", "Not authenticated - Invalid Authentication", hint=hint)
        else:
            hint = f"Send your key in the header x-key, or as Authorization: Bearer {KEY_PREFIX}…. {_KEY_HINT}"
            super().__init__(403, "missing_key", "Not authenticated", hint=hint)


async def authenticate(services: Services, request: HTTPConnection, permission: Permission) -> Caller:
    """Returns the caller. Raises HTTPException unless it has the permission."""
    reads = request.scope.get("method") in ("GET", "HEAD")
    caller = await _caller(services, request, use_cache=reads or permission not in _CHANGES_ACCOUNTS)
    if not caller.may(permission):
        role = caller.role.value.replace("_", " ")
        detail = f"Not allowed: the role {role} has no permission to {permission.value}"
        raise ApiError(403, "permission_denied", detail)
    return caller


def has_credentials(headers: Headers) -> bool:
    return has_key_or_token(headers) or has_session(headers)


def has_key_or_token(headers: Headers) -> bool:
    return bool(headers.get(_KEY)) or headers.get("authorization", "").lower().startswith(_BEARER)


async def _caller(services: Services, request: HTTPConnection, *, use_cache: bool = True) -> Caller:
    secret, authorization = request.headers.get(_KEY), request.headers.get("authorization", "")
    if not secret and authorization.lower().startswith(_BEARER):
        token = authorization[len(_BEARER) :].strip()
        if token.startswith(TOKEN_PREFIX):
            return await _authenticate_oauth_client(services, token, request, use_cache)
        if not token.startswith(KEY_PREFIX):
            return await _authenticate_jwt(services, token, request)
        secret = token
    if not secret:
        return await _authenticate_session(services, request, use_cache)
    caller = await services.auth.callers.authenticate(secret, use_cache=use_cache)
    if caller is None:
        raise NotAuthenticated(wrong_key=True)
    return caller


async def _authenticate_session(services: Services, request: HTTPConnection, use_cache: bool) -> Caller:
    secret = session_secret(request, services.settings.service)
    caller = None if secret is None else await services.auth.session_resolver.caller(secret, use_cache=use_cache)
    if caller is None:
        raise NotAuthenticated
    check_origin(request, services.settings.service)
    return caller


async def optional_caller(services: Services, request: HTTPConnection) -> Caller | None:
    """Returns the caller; None for a request without credentials, or with those of an ended session."""
    if not has_key_or_token(request.headers):
        secret = session_secret(request, services.settings.service)
        return None if secret is None else await services.auth.session_resolver.caller(secret)
    return await _caller(services, request)


async def _authenticate_oauth_client(
    services: Services, token: str, request: HTTPConnection, use_cache: bool
) -> Caller:
    caller = await services.auth.token_authentication.caller(token, request.headers.get(_PROJECT), use_cache=use_cache)
    if caller is None:
        raise _invalid_token_error("it has expired, or is not for this project", services, request)
    return caller


async def _authenticate_jwt(services: Services, token: str, request: HTTPConnection) -> Caller:
    try:
        return await services.auth.tokens.authenticate(token)
    except TokenRefused as reason:
        raise _invalid_token_error(str(reason), services, request) from None
    except IssuerUnreachable:
        raise HTTPException(503, "The token's issuer is out of reach", {"Retry-After": "5"}) from None


def _invalid_token_error(reason: str, services: Services, request: HTTPConnection) -> ApiError:
    """Returns the error with the challenge of RFC 6750 section 3 and RFC 9728 section 5.1."""
    metadata = public_base(request, services.settings.service) + RESOURCE_METADATA
    challenge = (
        f'Bearer error="invalid_token", error_description={quote_string(reason)}, '
        f"resource_metadata={quote_string(metadata)}"
    )
    hint = f"An API key begins with {KEY_PREFIX}; it is sent in the header x-key, or as Authorization: Bearer too"
    return ApiError(401, "invalid_token", f"Token refused: {reason}", {"WWW-Authenticate": challenge}, hint=hint)


def quote_string(text: str) -> str:
    """Quotes the value of a header's parameter (RFC 9110 section 5.6.4). Other than ASCII becomes a question mark."""
    ascii_text = "".join(character if " " <= character <= "~" else "?" for character in text)
    return '"' + ascii_text.replace("\\", r"\\").replace('"', r"\"") + '"'


def _require(permission: Permission) -> Callable[..., Awaitable[Caller]]:
    async def caller(
        request: Request,
        services: Deps,
        key: Annotated[object, Security(_key_scheme)],
        token: Annotated[object, Security(_token_scheme)],
    ) -> Caller:
        return await authenticate(services, request, permission)

    return caller


Generator = Annotated[Caller, Depends(_require(Permission.GENERATE))]
TaskReader = Annotated[Caller, Depends(_require(Permission.READ_TASKS))]
CreditReader = Annotated[Caller, Depends(_require(Permission.READ_CREDITS))]
AccountReader = Annotated[Caller, Depends(_require(Permission.READ_ACCOUNTS))]
MoneyReader = Annotated[Caller, Depends(_require(Permission.READ_MONEY))]
KeyMaker = Annotated[Caller, Depends(_require(Permission.MANAGE_OWN_KEYS))]
ProjectMaker = Annotated[Caller, Depends(_require(Permission.MANAGE_PROJECTS))]
MemberMaker = Annotated[Caller, Depends(_require(Permission.MANAGE_MEMBERS))]
AuditReader = Annotated[Caller, Depends(_require(Permission.READ_AUDIT))]
Operator = Annotated[Caller, Depends(_require(Permission.OPERATE))]
