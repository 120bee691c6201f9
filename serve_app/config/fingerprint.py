"""Tells whether a deployment is still what it was: Ray restarts replicas whose version is another.

A version has four parts, so that one can tell what changed: the code, what is bound, the secrets, and the revision that
an operator names to have everything restarted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from serve_app.config.bound import BoundSettings

_DIGITS: Final = 10
_PARTS: Final = ("code", "settings", "secrets", "revision")
_FOR_RAY: Final = {
    "service": ("ingress_replicas", "max_ongoing_requests", "actor", "max_per_node", "proxies"),
    "webhooks": ("replicas", "actor", "max_per_node"),
    "dispatcher": ("actor", "max_per_node", "health_check_period_s"),
    "moderation": ("actor", "max_per_node", "min_replicas", "max_replicas", "downscale_delay_s"),
}
_FOR_RAY_OF_MODELS: Final = ("actor", "health_check_period_s", "health_check_timeout_s", "drain_s")
"""Of the settings, what says how Ray runs replicas. It judges by itself what of that takes new ones."""


def version(
    packages: tuple[str, ...], bound: object, secrets: Mapping[str, Any], key: str | None, revision: str
) -> str:
    """Of a deployment that runs the code of `packages` and is bound with `bound`, a document.

    The secrets that it reads are in it as a digest under `key`, the one that seals: whoever sees the version but does
    not have that key can't try guesses on it. Without a key there is no service, and the part is empty.
    """
    told = hashlib.sha256(json.dumps(bound, sort_keys=True).encode())
    kept = hmac.new(key.encode(), json.dumps(secrets, sort_keys=True).encode(), hashlib.sha256) if key else None
    named = hashlib.sha256(revision.encode())
    digests = (code(packages), told.hexdigest(), kept.hexdigest() if kept else "", named.hexdigest())
    return ".".join(digest[:_DIGITS] for digest in digests)


def document(bound: object) -> Any:
    """What a deployment is bound with, in JSON's types. Other deployments, and what else has no fields, say nothing."""
    if isinstance(bound, BoundSettings):
        return _read_by_replicas(json.loads(bound.told))
    if isinstance(bound, BaseModel):
        return bound.model_dump(mode="json")
    if is_dataclass(bound):
        return {each.name: document(getattr(bound, each.name)) for each in fields(bound)}
    if isinstance(bound, Mapping):
        return {str(name): document(value) for name, value in bound.items()}
    if isinstance(bound, list | tuple):
        return [document(value) for value in bound]
    return bound if bound is None or isinstance(bound, str | int | float) else ""


def _read_by_replicas(sections: dict[str, Any]) -> dict[str, Any]:
    """Without what only says how many of them there are, and where."""
    for section, names in _FOR_RAY.items():
        for name in names:
            sections.get(section, {}).pop(name, None)
    for model in sections.get("models", {}).values():
        for name in _FOR_RAY_OF_MODELS:
            model.pop(name, None)
        scaling = model.pop("autoscaling", {})
        if "dispatcher" in sections:  # which hands out as much as all replicas can take
            model["max_replicas"] = scaling.get("max_replicas")
    return sections


def changed(old: str | None, new: str) -> tuple[str, ...]:
    """Which parts of two versions differ."""
    before, after = (old or "").split("."), new.split(".")
    if len(before) != len(_PARTS):
        return ("deployed by other means before",)
    return tuple(name for name, one, other in zip(_PARTS, before, after, strict=True) if one != other)


@cache
def code(packages: tuple[str, ...]) -> str:
    """Of the files of these packages that say what is done: programs, scripts of the store, lists of words."""
    digest = hashlib.sha256()
    for package in packages:
        found = find_spec(package)
        assert found is not None
        assert found.origin is not None
        root = Path(found.origin).parent
        for file in sorted(path for kind in ("*.py", "*.lua", "*.yaml") for path in root.rglob(kind)):
            digest.update(f"{package}/{file.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
