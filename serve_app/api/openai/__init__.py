"""Routes in the form of OpenAI's, for its clients and for tools that are made for them.

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
from serve_app.api.openai.translation import Offered
from serve_app.api.services import Deps, Services
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.submission.prepare import Offer


def models_router(offered: Offered, catalog: Catalog) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["openai"], route_class=JsonRoute)

    async def shown(offer: Offer, services: Services) -> Model:
        deprecated = catalog.deprecated.get(offer.name)
        sunset = deprecated.sunset if deprecated else None
        found = await services.models.of({recipe.model for recipe in offer.recipes.values()})
        return Model(
            id=offer.name,
            shutdown_date=sunset.isoformat() if sunset else None,
            state=found.state,
            predicted_wait_s=found.predicted_wait_s,
        )

    @routes.get("", responses=errors())
    async def list_models(services: Deps, caller: TaskReader) -> ModelList:
        """All endpoints that are served here, with whether they are ready."""
        return ModelList(data=[await shown(offer, services) for offer in offered.all()])

    # Names may have a slash in them.
    @routes.get("/{model:path}", responses=errors(404))
    async def get_model(services: Deps, caller: TaskReader, model: Annotated[str, Path(max_length=200)]) -> Model:
        """One of them, by any name that it has; the answer has its own."""
        return await shown(offered.named(model), services)

    return routes


def routers(catalog: Catalog, settings: Settings, offers: Mapping[str, Offer]) -> Iterator[APIRouter]:
    """`offers` by path. Raises ValueError where the settings name what does not fit."""
    offered = Offered(offers, catalog, settings)
    yield images.router(offered)
    yield videos.router(offered)
    yield models_router(offered, catalog)
