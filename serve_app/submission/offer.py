"""What a client may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from serve_app.config.catalog import Recipes
from serve_app.config.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Offer:
    """An endpoint as this service has it: its name, its entry in the catalog, and how each of its modes is done."""

    name: str
    endpoint: Endpoint
    recipes: Recipes
