"""Routes of OpenID Connect sign-in.

The state with which the browser returns must be in a cookie, too. So an attacker can't send another person's browser
here with an answer of their own (login CSRF).
"""

from __future__ import annotations

import hmac
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import RedirectResponse
from starlette.responses import Response

from serve_app.accounts.attempt_limiter import TooManyAttempts
from serve_app.accounts.jwt_auth import IssuerUnreachable
from serve_app.accounts.openid import SIGN_IN_LIFE_S, OpenId, SignInRefused
from serve_app.accounts.sessions import SubjectType
from serve_app.api.hosts import client_address, public_base
from serve_app.api.routes.session import begin_session, find_first_project
from serve_app.api.services import Deps, Services

router = APIRouter(prefix="/v1/session/openid", include_in_schema=False)

_CALLBACK: Final = "/v1/session/openid/back"
_COOKIE: Final = "gen_signing_in"
_NO_STORE: Final = {"Cache-Control": "no-store"}
_QueryText = Annotated[str, Query(max_length=4096)]


@router.get("")
async def login(request: Request, services: Deps, to: Annotated[str, Query(max_length=2000)] = "/") -> Response:
    """Redirects to the provider."""
    openid, base = _require_openid(services), public_base(request, services.settings.service)
    try:
        url, state = await openid.begin(base + _CALLBACK, to, client_address(request, services.settings.service))
    except IssuerUnreachable:
        return _sign_in_page("out-of-reach")
    except TooManyAttempts as refusal:
        raise HTTPException(429, "Too many sign-ins", {"Retry-After": str(refusal.retry_s)}) from None
    answer = RedirectResponse(url, 302, _NO_STORE)
    answer.set_cookie(
        _COOKIE, state, SIGN_IN_LIFE_S, path=_CALLBACK, secure=base.startswith("https:"), httponly=True, samesite="lax"
    )
    return answer


@router.get("/back")
async def callback(request: Request, services: Deps, state: _QueryText = "", code: _QueryText = "") -> Response:
    """Completes a sign-in when the provider redirects back."""
    openid, base = _require_openid(services), public_base(request, services.settings.service)
    cookie = request.cookies.get(_COOKIE, "")
    if not code or not hmac.compare_digest(cookie.encode(), state.encode()):
        return _sign_in_page("refused")
    try:
        name, to = await openid.finish(base + _CALLBACK, state, code)
    except SignInRefused:
        return _sign_in_page("refused")
    except IssuerUnreachable:
        return _sign_in_page("out-of-reach")
    project = await find_first_project(services, name)
    if project is None:
        return _sign_in_page("no-member")
    answer = RedirectResponse(to if _is_path(to) else "/", 302, _NO_STORE)
    answer.delete_cookie(_COOKIE, path=_CALLBACK)
    await begin_session(services, request, answer, SubjectType.PERSON, name, project)
    return answer


def _require_openid(services: Services) -> OpenId:
    if services.auth.openid is None:
        raise HTTPException(404, "Not Found")
    return services.auth.openid


def _is_path(to: str) -> bool:
    """Returns whether `to` stays on this service, so that a link can't redirect people elsewhere."""
    return to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()


def _sign_in_page(problem: str) -> Response:
    return RedirectResponse(f"/sign-in?{urlencode({'problem': problem})}", 302, _NO_STORE)
