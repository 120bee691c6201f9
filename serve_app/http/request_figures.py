"""How long requests take until they are answered, by method, status and route: counted in memory, in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.redis_store.tally import Tallied, Tally

UNMATCHED: Final = "unmatched"
"""The route of a path that there is not."""
_OTHER: Final = "other"
"""Any method that clients make up."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@cache
def _name(method: str, hundreds: int, route: str) -> str:
    return f"{method} {hundreds}xx {route}"


class RequestFigures:
    """ASGI middleware, the innermost: it finds in `scope` which route was taken. What those around it answer by
    themselves, for hosts and origins that are none of ours, is not counted.

    To the beginning of the answer: how fast a client reads says nothing about the service.
    """

    def __init__(
        self, app: ASGIApp, routes: FastAPI, tally: Tally, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self._routed = routes
        self._tally = tally
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = self._clock()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._note(scope, status, began)
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception:
            if not status:
                self._note(scope, 500, began)
            raise

    def _note(self, scope: Scope, status: int, began: float) -> None:
        took_s = self._clock() - began
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        route = self._templates.get(scope.get("endpoint"), UNMATCHED)
        self._tally.observe(Tallied.REQUESTS, _name(method, status // 100, route), took_s)

    @cached_property
    def _templates(self) -> Mapping[Any, str]:
        """Paths as their routes name them, by what answers there."""
        found: dict[Any, str] = {}
        for context in iter_route_contexts(self._routed.routes):
            route: Any = context.original_route
            answers = getattr(context, "endpoint", None) or getattr(route, "endpoint", None) or route.app
            found[answers] = context.path_format or route.path_format
        return found
