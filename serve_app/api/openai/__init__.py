"""OpenAI-style routes, for its clients and the tools made for them.

Each is thin: it turns what was sent into the request of an endpoint, and goes on as that endpoint's own route does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Path

from serve_app.api.auth import TaskReader
from serve_app.api.bodies import JsonRoute
from serve_app.api.openai import images, videos
from serve_app.api.openai.schema import Model, ModelList, errors
from serve_app.api.openai.translation import OpenAIEndpoints
from serve_app.api.services import Deps, Services
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.submission.prepare import ServedEndpoint


def models_router(openai_endpoints: OpenAIEndpoints, catalog: Catalog) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["openai"], route_class=JsonRoute)

    async def view(served_endpoint: ServedEndpoint, services: Services) -> Model:
        deprecation = catalog.deprecated.get(served_endpoint.name)
        sunset = deprecation.sunset if deprecation else None
        model_state = await services.tasks.models.worst_status(
            {defaults.model for defaults in served_endpoint.defaults.values()}
        )
        return Model(
            id=served_endpoint.name,
            shutdown_date=sunset.isoformat() if sunset else None,
            state=model_state.state,
            demo=any(defaults.demo for defaults in served_endpoint.defaults.values()),
            predicted_wait_s=model_state.predicted_wait_s,
        )

    @routes.get("", responses=errors())
    async def list_models(services: Deps, caller: TaskReader) -> ModelList:
        """All endpoints that are served here, with whether they are ready."""
        return ModelList(data=[await view(served_endpoint, services) for served_endpoint in openai_endpoints.all()])

    # Names may have a slash in them.
    @routes.get("/{model:path}", responses=errors(404))
    async def get_model(services: Deps, caller: TaskReader, model: Annotated[str, Path(max_length=200)]) -> Model:
        """One of them, by any name that it has; the answer has its own."""
        return await view(openai_endpoints.find(model), services)

    return routes


def routers(
    catalog: Catalog, settings: Settings, served_endpoints: Mapping[str, ServedEndpoint]
) -> Iterator[APIRouter]:
    """`served_endpoints` by path. Raises ValueError where the settings name what does not fit."""
    openai_endpoints = OpenAIEndpoints(served_endpoints, catalog, settings)
    yield images.router(openai_endpoints)
    yield videos.router(openai_endpoints)
    yield models_router(openai_endpoints, catalog)
