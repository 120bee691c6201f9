"""Small ASGI middlewares: compression, HEAD, path aliases, default headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from email.utils import format_datetime

from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.config.catalog import Deprecation


class Compression:
    """ASGI middleware: compresses responses below `paths`."""

    def __init__(self, app: ASGIApp, paths: tuple[str, ...]) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=1000, compresslevel=6)
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_compressed = scope["type"] == "http" and scope["path"].startswith(self._paths)
        await (self._gzip if is_compressed else self._plain)(scope, receive, send)


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Returns the methods that the path of `scope` accepts; none for an unknown path."""
    methods = [method for method in _METHODS if _accepts(routes, scope, method)]
    return [method for method in _METHODS if method in methods or (method == "HEAD" and "GET" in methods)]


def _accepts(routes: Iterable[BaseRoute], scope: Scope, method: str) -> bool:
    return any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)


class HeadAsGet:
    """ASGI middleware: passes HEAD on as GET where no route accepts HEAD. The server leaves out the body."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and not _accepts(self.routes, scope, "HEAD"):
            scope = {**scope, "method": "GET"} if _accepts(self.routes, scope, "GET") else scope
        await self.app(scope, receive, send)


API_PREFIX = "gen"


def resolve_alias(path: str, tokens: Sequence[str]) -> str:
    """Returns `/v1/gen-…` for a path that starts with `/v1/<token>-`, and any other path unchanged."""
    alias = re.match(f"/v1/(?:{'|'.join(map(re.escape, tokens))})-", path) if tokens else None
    return f"/v1/{API_PREFIX}-{path[alias.end() :]}" if alias else path


class PathAliases:
    """ASGI middleware: resolves path aliases."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        self.app = app
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (path := resolve_alias(scope["path"], self.tokens)) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)


def deprecation_headers(deprecation: Deprecation) -> dict[str, str]:
    """Returns the headers of a deprecated endpoint (RFC 9745, RFC 8594). Days begin in UTC."""
    headers = {"Deprecation": f"@{int(_start(deprecation.since).timestamp())}"}
    if deprecation.sunset is not None:
        headers["Sunset"] = format_datetime(_start(deprecation.sunset), usegmt=True)
    if deprecation.successors:
        headers["Link"] = ", ".join(f'</v1/{name}>; rel="successor-version"' for name in deprecation.successors)
    return headers


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class DefaultHeaders:
    """ASGI middleware: adds headers to `/v1/` responses that do not have them, errors included.

    The responses are private: shared caches know what `Authorization` means, but not `x-key`. `headers_by_path` has
    further headers of single paths.
    """

    def __init__(self, app: ASGIApp, headers_by_path: Mapping[str, Mapping[str, str]]) -> None:
        self.app = app
        self.headers_by_path = headers_by_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        defaults = {"Cache-Control": "private, no-store", **self.headers_by_path.get(scope["path"], {})}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in defaults.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)
