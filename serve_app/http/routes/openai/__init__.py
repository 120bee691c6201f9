"""Routes in the form of OpenAI's, for its clients and for tools that are made for them.

Each is thin: it turns what was sent into the request of an endpoint, and goes on as that endpoint's own route does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastapi import APIRouter

from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.http.routes.openai import images, models, videos
from serve_app.http.routes.openai.offered import Offered
from serve_app.submission.dependencies import Offer


def routers(catalog: Catalog, settings: Settings, offers: Mapping[str, Offer]) -> Iterator[APIRouter]:
    """`offers` by path. Raises ValueError where the settings name what does not fit."""
    offered = Offered(offers, catalog, settings)
    yield images.router(offered)
    yield videos.router(offered)
    yield models.router(offered, catalog)
