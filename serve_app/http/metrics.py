"""Figures for Prometheus: an app of its own, on a port of its own, one for the whole service.

They come from the task store, so it makes no difference which process answers; on the ingress they would be open to
every client, and behind its proxy nobody could tell who asks.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.figures.reader import FiguresReader
from serve_app.http import errors
from serve_app.http.origin import KnownHosts
from serve_app.http.services import ANSWER_S, AskReplicas, unknown_replicas
from serve_app.redis_store import connection
from serve_app.tasks.store import TaskStore

PATH = "/metrics"


def create_metrics_app(settings: Settings, catalog: Catalog, replicas: AskReplicas = unknown_replicas) -> FastAPI:
    """`/metrics` over the task store that `settings` names, for those who show `metrics.token`, if there is one."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        redis = connection.connect(settings.redis_url, answer_s=ANSWER_S)
        tasks = TaskStore(redis, settings.redis.prefix, settings.tasks.limits())
        app.state.reader = FiguresReader(
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
        app.add_middleware(KnownHosts, settings=settings.service, open_paths=frozenset())

    @app.get(PATH)
    async def metrics(request: Request) -> PlainTextResponse:
        _check(request, token)
        reader: FiguresReader = request.app.state.reader
        text = generate_latest(await reader.read())
        return PlainTextResponse(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return app


def _check(request: Request, token: str | None) -> None:
    shown = request.headers.get("authorization", "")
    if token and not secrets.compare_digest(shown.encode(), f"Bearer {token}".encode()):
        raise HTTPException(401, "Show metrics.token: Authorization: Bearer <token>", {"WWW-Authenticate": "Bearer"})
