"""Which methods a path takes, all its routes together; and HEAD, for all that can be got."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def allowed(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """The methods that the path of `scope` takes. Empty where there is no such path."""
    routed = [method for method in _METHODS if _takes(routes, scope, method)]
    return [method for method in _METHODS if method in routed or (method == "HEAD" and "GET" in routed)]


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
