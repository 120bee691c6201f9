"""Which web pages' scripts may use the service: those of the origins that the settings name (CORS).

No page of another origin reads an answer, and none gets a key across, as `x-key` and `Authorization` make browsers ask
first. `null`, the origin of files and of sandboxed frames, is nobody's and can't be named. A page whose name was made
to point at this machine (DNS rebinding) is refused by its `Host`, before it is asked where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.config.addresses import is_loopback
from serve_app.config.settings import LOOPBACK_ORIGINS

_ORIGIN: Final = re.compile(r"https?://(\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(:[0-9]{1,5})?")
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SENT: Final = ("x-key", "authorization", "content-type", "idempotency-key", "if-none-match", "range", "user-agent")
_SHOWN: Final = (
    "Retry-After",
    "ETag",
    "RateLimit",
    "RateLimit-Policy",
    "Deprecation",
    "Sunset",
    "Link",
    "Allow",
    "WWW-Authenticate",
)


class CrossOrigin(CORSMiddleware):
    """ASGI middleware: lets scripts of `origins` send requests with keys, and read the answers, errors included.

    Of what is below `open_path` the app itself says who may read it.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], open_path: str) -> None:
        named = [origin for origin in origins if origin != LOOPBACK_ORIGINS]
        super().__init__(app, allow_origins=named, allow_methods=_METHODS, allow_headers=_SENT, expose_headers=_SHOWN)
        self.loopback = LOOPBACK_ORIGINS in origins
        self.open_path = open_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self.open_path):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        return super().is_allowed_origin(origin) or (self.loopback and _is_of_loopback(origin))

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return JSONResponse(
            {"detail": bytes(response.body).decode(), "code": "origin_not_allowed"},
            response.status_code,
            self.preflight_headers,
        )


def _is_of_loopback(origin: str) -> bool:
    written = _ORIGIN.fullmatch(origin)
    return written is not None and is_loopback(written["v6"] or written["name"])
