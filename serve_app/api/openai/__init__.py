"""Routes in the style of OpenAI's API, for its clients and tools.

Each route translates its request into one of an endpoint, and continues as that endpoint's own route.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Path

from serve_app.api.auth import TaskReader
from serve_app.api.bodies import JsonRoute
from serve_app.api.openai import images, videos
from serve_app.api.openai.schema import ModelList, OpenAIModel, errors
from serve_app.api.openai.translation import OpenAIEndpoints
from serve_app.api.services import Deps, Services
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.submission.prepare import ServedEndpoint


def models_router(openai_endpoints: OpenAIEndpoints, catalog: Catalog) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["openai"], route_class=JsonRoute)

    async def view(served_endpoint: ServedEndpoint, services: Services) -> OpenAIModel:
        deprecation = catalog.deprecated.get(served_endpoint.name)
        sunset = deprecation.sunset if deprecation else None
        model_state = await services.tasks.models.worst_status(
            {defaults.model for defaults in served_endpoint.defaults.values()}
        )
        return OpenAIModel(
            id=served_endpoint.name,
            shutdown_date=sunset.isoformat() if sunset else None,
            state=model_state.state,
            demo=any(defaults.demo for defaults in served_endpoint.defaults.values()),
            predicted_wait_s=model_state.predicted_wait_s,
        )

    @routes.get("", responses=errors())
    async def list_models(services: Deps, caller: TaskReader) -> ModelList:
        """Lists the endpoints of this service and their states."""
        return ModelList(data=[await view(served_endpoint, services) for served_endpoint in openai_endpoints.all()])

    # Names may contain a slash.
    @routes.get("/{model:path}", responses=errors(404))
    async def get_model(services: Deps, caller: TaskReader, model: Annotated[str, Path(max_length=200)]) -> OpenAIModel:
        """Returns an endpoint by any of its names. The response has its main name."""
        return await view(openai_endpoints.find(model), services)

    return routes


def routers(
    catalog: Catalog, settings: Settings, served_endpoints: Mapping[str, ServedEndpoint]
) -> Iterator[APIRouter]:
    """Yields the routers. `served_endpoints` are by path. Raises ValueError for wrong settings of `openai`."""
    openai_endpoints = OpenAIEndpoints(served_endpoints, catalog, settings)
    yield images.router(openai_endpoints)
    yield videos.router(openai_endpoints)
    yield models_router(openai_endpoints, catalog)
