"""What browsers send by themselves: the cookie of a session, and where a request comes from.

A cookie goes along with whatever any page sends here. So what changes something counts only from this service's own
pages (CSRF), as the browser says in `Sec-Fetch-Site` or `Origin`; `SameSite=Strict` keeps it from other sites anyway.
"""

from __future__ import annotations

from typing import Final

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, cookie_parser
from starlette.responses import Response

from serve_app.accounts.sessions import LIFE_S
from serve_app.config.settings import ServiceSettings
from serve_app.http.origin import public_base

_COOKIE: Final = "gen_session"
_HOST_COOKIE: Final = f"__Host-{_COOKIE}"
"""Browsers take it over HTTPS alone, from this host alone."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def has_session(headers: Headers) -> bool:
    """Whether there is a cookie that may be one's."""
    return not {_HOST_COOKIE, _COOKIE}.isdisjoint(cookie_parser(headers.get("cookie", "")))


def session_secret(request: HTTPConnection, settings: ServiceSettings) -> str | None:
    """Over HTTPS the cookie of this host alone: the other may be a neighbour's below the same domain."""
    name = _HOST_COOKIE if _is_secure(request, settings) else _COOKIE
    return cookie_parser(request.headers.get("cookie", "")).get(name) or None


def _is_secure(request: HTTPConnection, settings: ServiceSettings) -> bool:
    return public_base(request, settings).startswith("https:")


def check_origin(request: HTTPConnection, settings: ServiceSettings) -> None:
    """Raises the HTTPException for a change that another site's page asks for, or nobody knows who."""
    if request.scope.get("method") in _READING:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site == "same-origin" or (site is None and origin == public_base(request, settings)):
        return
    raise HTTPException(403, "A session counts on this service's own pages alone; send a key instead")


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
