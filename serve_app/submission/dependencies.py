"""What accepting a request takes, whoever brings it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from deployments.contract.objects import ObjectStore
from deployments.telemetry.tracing import OFF, Tracer
from serve_app.config.catalog import Recipes
from serve_app.config.endpoint import Endpoint
from serve_app.media.inputs import Inputs
from serve_app.media.url_guard import UrlGuard
from serve_app.tasks.store import TaskStore

FindWeights: TypeAlias = Callable[[str, str, str], Awaitable[str | None]]
"""By a finetune's id, its project and the model it is for: the object that holds its weights, if it may be used."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    tasks: TaskStore
    objects: ObjectStore
    guard: UrlGuard
    """In front of every address that a request names."""
    inputs: Inputs
    """The gate for the files that a request sends."""
    find_weights: FindWeights
    seal: Callable[[str], str]
    """Encrypts a webhook's secret, as it is stored."""
    tracer: Tracer = OFF


@dataclass(frozen=True, slots=True)
class Offer:
    """An endpoint as this service has it: its name, its entry in the catalog, and how each of its modes is done."""

    name: str
    endpoint: Endpoint
    recipes: Recipes
