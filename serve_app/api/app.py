"""The FastAPI app.

It imports no model code and never blocks. Its state is in Redis and the object store, so any replica can serve any
request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Route

from deployments.proxies import apply_proxy
from deployments.telemetry import logs
from serve_app.accounts.roles import Permission
from serve_app.api import errors, http_1_0, openai, openapi, services
from serve_app.api.auth import MCP, authenticate
from serve_app.api.bodies import BodyLimits
from serve_app.api.errors import STORE_UNREACHABLE
from serve_app.api.hosts import CrossOrigin, TrustedHosts
from serve_app.api.mcp import McpServer
from serve_app.api.memory import tune_malloc
from serve_app.api.metrics import RequestMetrics
from serve_app.api.middleware import Compression, DefaultHeaders, HeadAsGet, PathAliases, deprecation_headers
from serve_app.api.model_status import CountReplicas, unknown_replicas
from serve_app.api.openai.schema import translate_error
from serve_app.api.pages import PATH, add_pages, guide, shared
from serve_app.api.routes import (
    account,
    admin,
    finetunes,
    generate,
    health,
    invitations,
    licences,
    oauth,
    openid,
    results,
    session,
    tasks,
    uploads,
    webhooks,
)
from serve_app.api.routes.oauth import PATHS as OAUTH_PATHS
from serve_app.api.routes.oauth import oauth_routes
from serve_app.config.catalog import Catalog
from serve_app.config.replicas import installed_release
from serve_app.config.settings import Settings
from serve_app.inputs.links import PREFIXES
from serve_app.storage.connection import UNREACHABLE
from serve_app.storage.refusals import StoreRefused
from serve_app.storage.tally import CounterBuffer


def create_app(settings: Settings, catalog: Catalog, replicas: CountReplicas = unknown_replicas) -> FastAPI:
    tally = CounterBuffer()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with services.open_services(settings, catalog, replicas, tally) as app.state.services, mcp.running():
            yield

    app = FastAPI(
        title="Media generation",
        version=installed_release(),
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: openapi.camel_case(route.name),
        # Behind a proxy a redirect would name the wrong origin, and clients would send their key there.
        redirect_slashes=False,
    )
    errors.install(app, translate_error)
    served_endpoints = generate.served_endpoints(catalog, settings)
    mcp = McpServer(app, served_endpoints)
    app.add_middleware(RequestMetrics, routes=app, tally=tally)
    app.add_middleware(
        BodyLimits,
        max_bytes=settings.service.max_body_mb * 2**20,
        max_inflight_bytes=settings.service.max_inflight_mb * 2**20,
        check=_key_check(app),
        uploads={finetunes.UPLOAD: settings.finetunes.max_mb * 2**20},
        small=OAUTH_PATHS,
        max_s=settings.service.max_body_s,
        signed=PREFIXES["PUT"],
    )
    if settings.service.cors_origins:
        app.add_middleware(CrossOrigin, origins=settings.service.cors_origins, open_path=results.FILES)
    deprecated = {f"/v1/{name}": deprecation_headers(each) for name, each in catalog.deprecated.items()}
    app.add_middleware(DefaultHeaders, headers_by_path=deprecated)
    if settings.service.path_aliases:
        app.add_middleware(PathAliases, tokens=settings.service.path_aliases)
    app.add_middleware(Compression, paths=(openapi.PUBLIC, openapi.ADMIN, openapi.ASSETS, PATH, guide.PATH))
    app.add_middleware(TrustedHosts, settings=settings.service, open_paths=frozenset((health.ALIVE, health.READY)))
    for router in (
        generate.router(catalog, settings, served_endpoints),
        *openai.routers(catalog, settings, served_endpoints),
        results.router,
        tasks.router,
        results.events_router,
        webhooks.router,
        finetunes.router,
        uploads.router,
        session.router,
        openid.router,
        invitations.router,
        oauth.router,
        account.router,
        licences.router,
        admin.router,
        oauth.metadata_router,
        shared.router,
        health.router,
    ):
        app.include_router(router)
    if settings.accounts.oauth_clients:
        app.router.routes += oauth_routes()
    app.router.routes.append(Route(MCP, mcp, methods=["POST"]))
    openapi.install(app)
    add_pages(app)
    guide.add_guide(app)
    app.add_middleware(HeadAsGet, routes=app.routes)
    return app


def _key_check(app: FastAPI) -> Callable[[HTTPConnection], Awaitable[object]]:
    """Returns a check of a request's key, for use before its body is read."""

    async def check(request: HTTPConnection) -> None:
        if request.scope["path"].startswith(PREFIXES["PUT"]):
            uploads.check_signature(app.state.services, request)
            return
        # The price of a request is computed from its body, which may be large.
        permission = Permission.READ_CREDITS if request.scope["path"] == account.PRICING else Permission.GENERATE
        try:
            await authenticate(app.state.services, request, permission)
        except UNREACHABLE as problem:
            detail = errors.STORE_REFUSES if isinstance(problem, StoreRefused) else STORE_UNREACHABLE
            raise HTTPException(503, detail, errors.SHORTLY) from None

    return check


def replica_app(settings: Settings, catalog: Catalog, replicas: CountReplicas) -> FastAPI:
    """Creates the app of an ingress replica, and configures its process."""
    logs.configure_replica(settings.logs.spec())
    apply_proxy(settings.network.proxy)
    tune_malloc()
    http_1_0.install()
    app = create_app(settings, catalog, replicas)
    app.openapi()  # cached: on a request, it would block others
    return app
