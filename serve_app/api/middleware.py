"""Small ASGI middlewares: compression, HEAD, path aliases, deprecation headers."""

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

_LEAST_BYTES = 1000
_LEVEL = 6


class Compression:
    """ASGI middleware for answers under these paths."""

    def __init__(self, app: ASGIApp, paths: tuple[str, ...]) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_compressed = scope["type"] == "http" and scope["path"].startswith(self._paths)
        await (self._gzip if is_compressed else self._plain)(scope, receive, send)


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """The methods that the path of `scope` takes. Empty where there is no such path."""
    methods = [method for method in _METHODS if _takes(routes, scope, method)]
    return [method for method in _METHODS if method in methods or (method == "HEAD" and "GET" in methods)]


def _takes(routes: Iterable[BaseRoute], scope: Scope, method: str) -> bool:
    return any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)


class HeadAsGet:
    """ASGI middleware: HEAD is answered as GET would be, where no route of its own takes it; the server, which knows
    what was asked, leaves out the body.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and not _takes(self.routes, scope, "HEAD"):
            scope = {**scope, "method": "GET"} if _takes(self.routes, scope, "GET") else scope
        await self.app(scope, receive, send)


FAMILY = "gen"


def resolve_alias(path: str, tokens: Sequence[str]) -> str:
    """Returns `/v1/gen-…` for a path that begins with `/v1/<token>-`, and any other path unchanged."""
    alias = re.match(f"/v1/(?:{'|'.join(map(re.escape, tokens))})-", path) if tokens else None
    return f"/v1/{FAMILY}-{path[alias.end() :]}" if alias else path


class PathAliases:
    """ASGI middleware: resolves path aliases."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        self.app = app
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (path := resolve_alias(scope["path"], self.tokens)) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)


def notices(deprecation: Deprecation) -> dict[str, str]:
    """The headers of such an endpoint; days begin in UTC."""
    headers = {"Deprecation": f"@{int(_start(deprecation.since).timestamp())}"}
    if deprecation.sunset is not None:
        headers["Sunset"] = format_datetime(_start(deprecation.sunset), usegmt=True)
    if deprecation.successors:
        headers["Link"] = ", ".join(f'</v1/{name}>; rel="successor-version"' for name in deprecation.successors)
    return headers


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class PrivateByDefault:
    """ASGI middleware: keeps answers below `prefix` out of caches, unless they say otherwise.

    A key in `x-key` is no sign of privacy to a shared cache, as `Authorization` is.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self.app = app
        self.prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self.prefix):
            await self.app(scope, receive, send)
            return

        async def send_private(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("Cache-Control", "private, no-store")
            await send(message)

        await self.app(scope, receive, send_private)


class DeprecationNotices:
    """ASGI middleware: adds those of `headers_by_path` to every answer there, errors included."""

    def __init__(self, app: ASGIApp, headers_by_path: Mapping[str, Mapping[str, str]]) -> None:
        self.app = app
        self.headers_by_path = headers_by_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.headers_by_path.get(scope["path"]) if scope["type"] == "http" else None
        if headers is None:
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self.app(scope, receive, send_with_headers)
