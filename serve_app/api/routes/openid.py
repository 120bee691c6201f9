"""Routes of OpenID Connect sign-in.

The state that the browser comes back with is in a cookie of its own, too: nobody can send another's browser here with
an answer that was given to them (login CSRF).
"""

from __future__ import annotations

import hmac
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import RedirectResponse
from starlette.responses import Response

from serve_app.accounts.attempt_limiter import TooOften
from serve_app.accounts.jwt_auth import IssuerUnreachable
from serve_app.accounts.openid import SIGN_IN_LIFE_S, OpenId, SignInRefused
from serve_app.accounts.sessions import Kind
from serve_app.api.hosts import client_address, public_base
from serve_app.api.routes.session import begin, find_first_project
from serve_app.api.services import Deps, Services

router = APIRouter(prefix="/v1/session/openid", include_in_schema=False)

_BACK: Final = "/v1/session/openid/back"
_COOKIE: Final = "gen_signing_in"
_NO_STORE: Final = {"Cache-Control": "no-store"}
_QueryText = Annotated[str, Query(max_length=4096)]


@router.get("")
async def go(request: Request, services: Deps, to: Annotated[str, Query(max_length=2000)] = "/") -> Response:
    """To the provider."""
    openid, base = _require_openid(services), public_base(request, services.settings.service)
    try:
        url, state = await openid.begin(base + _BACK, to, client_address(request, services.settings.service))
    except IssuerUnreachable:
        return _sign_in_page("out-of-reach")
    except TooOften as refusal:
        raise HTTPException(429, "Too many sign-ins were begun", {"Retry-After": str(refusal.retry_s)}) from None
    answer = RedirectResponse(url, 302, _NO_STORE)
    answer.set_cookie(
        _COOKIE, state, SIGN_IN_LIFE_S, path=_BACK, secure=base.startswith("https:"), httponly=True, samesite="lax"
    )
    return answer


@router.get("/back")
async def back(request: Request, services: Deps, state: _QueryText = "", code: _QueryText = "") -> Response:
    """From the provider."""
    openid, base = _require_openid(services), public_base(request, services.settings.service)
    own = request.cookies.get(_COOKIE, "")
    if not code or not hmac.compare_digest(own.encode(), state.encode()):
        return _sign_in_page("refused")
    try:
        name, to = await openid.finish(base + _BACK, state, code)
    except SignInRefused:
        return _sign_in_page("refused")
    except IssuerUnreachable:
        return _sign_in_page("out-of-reach")
    project = await find_first_project(services, name)
    if project is None:
        return _sign_in_page("no-member")
    answer = RedirectResponse(to if _is_path(to) else "/", 302, _NO_STORE)
    answer.delete_cookie(_COOKIE, path=_BACK)
    await begin(services, request, answer, Kind.PERSON, name, project)
    return answer


def _require_openid(services: Services) -> OpenId:
    if services.auth.openid is None:
        raise HTTPException(404, "Not Found")
    return services.auth.openid


def _is_path(to: str) -> bool:
    """Of this service: a link here must not lead people on elsewhere."""
    return to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()


def _sign_in_page(problem: str) -> Response:
    return RedirectResponse(f"/sign-in?{urlencode({'problem': problem})}", 302, _NO_STORE)
