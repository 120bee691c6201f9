"""The version of a deployment: Ray restarts replicas whose version is another."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version as installed
from typing import Any, Final

from pydantic import BaseModel

from serve_app.config.bound import BoundSettings

_DIGITS: Final = 16
_FOR_RAY: Final = {
    "service": ("ingress_replicas", "max_ongoing_requests", "actor", "max_per_node", "proxies"),
    "webhooks": ("replicas", "actor", "max_per_node"),
    "dispatcher": ("actor", "max_per_node", "health_check_period_s"),
    "moderation": ("actor", "max_per_node", "min_replicas", "max_replicas", "downscale_delay_s"),
}
_FOR_RAY_OF_MODELS: Final = ("actor", "health_check_period_s", "health_check_timeout_s", "drain_s")
"""Of the settings, what says how Ray runs replicas. It judges by itself what of that takes new ones."""


def release() -> str:
    """The version of this package."""
    return installed("gen-serve")


def version(bound: object, reads: Collection[str], secrets: Mapping[str, Any], key: str | None, revision: str) -> str:
    """Of a deployment that is bound with `bound` and reads these sections of the settings, and their secrets.

    The digest is made under `key`, the one that seals: whoever sees the version but does not have that key can't try
    guesses on the secrets. Without a key there is no service.
    """
    own = {name: value for name, value in secrets.items() if name.partition(".")[0] in reads}
    told = json.dumps([_document(bound, reads), own, revision], sort_keys=True)
    return f"{release()}-{hmac.new((key or '').encode(), told.encode(), hashlib.sha256).hexdigest()[:_DIGITS]}"


def _document(bound: object, reads: Collection[str]) -> Any:
    """What a deployment is bound with, in JSON's types. Other deployments, and what else has no fields, say nothing."""
    if isinstance(bound, BoundSettings):
        return _read_by_replicas(json.loads(bound.public), reads)
    if isinstance(bound, BaseModel):
        return bound.model_dump(mode="json")
    if is_dataclass(bound):
        return {each.name: _document(getattr(bound, each.name), reads) for each in fields(bound)}
    if isinstance(bound, Mapping):
        return {str(name): _document(value, reads) for name, value in bound.items()}
    if isinstance(bound, list | tuple):
        return [_document(value, reads) for value in bound]
    return bound if bound is None or isinstance(bound, str | int | float) else ""


def _read_by_replicas(settings: dict[str, Any], reads: Collection[str]) -> dict[str, Any]:
    """Without what only says how many of them there are, and where."""
    sections = {name: value for name, value in settings.items() if name in reads}
    for section, names in _FOR_RAY.items():
        for name in names:
            sections.get(section, {}).pop(name, None)
    for model in sections.get("models", {}).values():
        for name in _FOR_RAY_OF_MODELS:
            model.pop(name, None)
        scaling = model.pop("autoscaling", {})
        if "dispatcher" in reads:  # which hands out as much as all replicas can take
            model["max_replicas"] = scaling.get("max_replicas")
    return sections
