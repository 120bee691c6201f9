"""The Prometheus endpoint on its own port, and request durations.

They come from the task store, so it makes no difference which process answers; on the ingress they would be open to
every client, and behind its proxy nobody could tell who asks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, cached_property
from typing import Any, Final

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from fastapi.routing import iter_route_contexts
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api import errors
from serve_app.api.hosts import TrustedHosts
from serve_app.api.model_status import AskReplicas, unknown_replicas
from serve_app.api.services import ANSWER_S
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.metrics.reader import MetricsReader
from serve_app.storage import connection
from serve_app.storage.tally import CounterBuffer, CounterName
from serve_app.tasks.store import TaskStore

PATH = "/metrics"


def create_metrics_app(settings: Settings, catalog: Catalog, replicas: AskReplicas = unknown_replicas) -> FastAPI:
    """`/metrics` over the task store that `settings` names, for those who show `metrics.token`, if there is one."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        redis = connection.connect(settings.redis_url, answer_s=ANSWER_S)
        tasks = TaskStore(redis, settings.redis.prefix, settings.tasks.limits())
        app.state.reader = MetricsReader(
            redis, tasks, list(catalog.models), projects=settings.metrics.projects, replicas=replicas
        )
        try:
            yield
        finally:
            await redis.aclose()

    app = FastAPI(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    errors.install(app)
    token = settings.metrics.token.get_secret_value() if settings.metrics.token else None
    if not token:  # a web page whose name points at this machine would be shown them
        app.add_middleware(TrustedHosts, settings=settings.service, open_paths=frozenset())

    @app.get(PATH)
    async def metrics(request: Request) -> PlainTextResponse:
        _check(request, token)
        reader: MetricsReader = request.app.state.reader
        text = generate_latest(await reader.read())
        return PlainTextResponse(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return app


def _check(request: Request, token: str | None) -> None:
    authorization = request.headers.get("authorization", "")
    if token and not secrets.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
        raise HTTPException(401, "Show metrics.token: Authorization: Bearer <token>", {"WWW-Authenticate": "Bearer"})


UNMATCHED: Final = "unmatched"
"""The route of a path that there is not."""
_OTHER: Final = "other"
"""Any method that clients make up."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@cache
def _name(method: str, hundreds: int, route: str) -> str:
    return f"{method} {hundreds}xx {route}"


class RequestMetrics:
    """ASGI middleware, the innermost: it finds in `scope` which route was taken. What those around it answer by
    themselves, for hosts and origins that are none of ours, is not counted.

    To the beginning of the answer: how fast a client reads says nothing about the service.
    """

    def __init__(
        self, app: ASGIApp, routes: FastAPI, tally: CounterBuffer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self._app_routes = routes
        self._tally = tally
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = self._clock()
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._note(scope, status, began)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            if not status:
                self._note(scope, 500, began)
            raise

    def _note(self, scope: Scope, status: int, began: float) -> None:
        took_s = self._clock() - began
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        route = self._templates.get(scope.get("endpoint"), UNMATCHED)
        self._tally.observe(CounterName.REQUESTS, _name(method, status // 100, route), took_s)

    @cached_property
    def _templates(self) -> Mapping[Any, str]:
        """Paths as their routes name them, by what answers there."""
        paths: dict[Any, str] = {}
        for context in iter_route_contexts(self._app_routes.routes):
            route: Any = context.original_route
            answers = getattr(context, "endpoint", None) or getattr(route, "endpoint", None) or route.app
            paths[answers] = context.path_format or route.path_format
        return paths
