"""The Prometheus endpoint on its own port, and a middleware that measures requests.

The metrics come from the task store, so any process can serve them. On the ingress's port every client could read
them: behind its proxy nothing shows who asks.
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
from serve_app.api.model_status import CountReplicas, unknown_replicas
from serve_app.api.services import ANSWER_S
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.metrics.reader import MetricsReader
from serve_app.storage import connection
from serve_app.storage.tally import CounterBuffer, CounterName
from serve_app.tasks.store import TaskStore

PATH = "/metrics"


def create_metrics_app(settings: Settings, catalog: Catalog, replicas: CountReplicas = unknown_replicas) -> FastAPI:
    """Creates the app that serves `/metrics`, to holders of `metrics.token` if that is set."""

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
    if not token:  # a web page could read them by DNS rebinding
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
        detail = "Invalid token. Send metrics.token as `Authorization: Bearer <token>`"
        raise HTTPException(401, detail, {"WWW-Authenticate": "Bearer"})


UNMATCHED: Final = "unmatched"
"""Route label of unknown paths."""
_OTHER: Final = "other"
"""Method label of unknown methods."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@cache
def _name(method: str, hundreds: int, route: str) -> str:
    return f"{method} {hundreds}xx {route}"


class RequestMetrics:
    """ASGI middleware that measures the time to the start of each response.

    It is the innermost one, because `scope` then names the route. Responses of the other middlewares are not counted.
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
        started_at = self._clock()
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                self._note(scope, message["status"], started_at)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            if not has_started:
                self._note(scope, 500, started_at)
            raise

    def _note(self, scope: Scope, status: int, started_at: float) -> None:
        took_s = self._clock() - started_at
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        route = self._templates.get(scope.get("endpoint"), UNMATCHED)
        self._tally.observe(CounterName.REQUESTS, _name(method, status // 100, route), took_s)

    @cached_property
    def _templates(self) -> Mapping[Any, str]:
        paths: dict[Any, str] = {}
        for context in iter_route_contexts(self._app_routes.routes):
            route: Any = context.original_route
            endpoint = getattr(context, "endpoint", None) or getattr(route, "endpoint", None) or route.app
            paths[endpoint] = context.path_format or route.path_format
        return paths
