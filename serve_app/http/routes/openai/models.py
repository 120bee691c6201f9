"""`/v1/models`: the catalog, as OpenAI's clients list models."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from serve_app.config.catalog import Catalog
from serve_app.http.auth import TaskReader
from serve_app.http.json_route import JsonRoute
from serve_app.http.routes.openai.offered import Offered
from serve_app.http.routes.openai.schema import Model, ModelList, errors
from serve_app.submission.offer import Offer


def router(offered: Offered, catalog: Catalog) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["openai"], route_class=JsonRoute)

    def shown(offer: Offer) -> Model:
        deprecated = catalog.deprecated.get(offer.name)
        sunset = deprecated.sunset if deprecated else None
        return Model(id=offer.name, shutdown_date=sunset.isoformat() if sunset else None)

    @routes.get("", responses=errors())
    async def list_models(caller: TaskReader) -> ModelList:
        """All endpoints that are served here."""
        return ModelList(data=[shown(offer) for offer in offered.all()])

    # Names may have a slash in them.
    @routes.get("/{model:path}", responses=errors(404))
    async def get_model(caller: TaskReader, model: Annotated[str, Path(max_length=200)]) -> Model:
        """One of them, by any name that it has; the answer has its own."""
        return shown(offered.named(model))

    return routes
