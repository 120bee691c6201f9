"""What a deployment of the application would change on the cluster, and why, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import ray
from ray import serve
from ray.serve._private.build_app import build_app
from ray.serve._private.deployment_info import DeploymentInfo
from ray.serve._private.version import DeploymentVersion
from ray.serve.context import _get_global_client

from serve_app.application import APP_NAME
from serve_app.config import fingerprint

Kind: TypeAlias = Literal["new", "restarts", "changes in place", "stays", "goes"]

_NAMED: Final = 4
"""Settings that are told by name."""
_NOT_TOLD: Final = frozenset(("version", "user_config", "user_configured_option_names", "logging_config"))
"""Of Ray's configuration of a deployment, what says nothing to an operator."""


@dataclass(frozen=True, slots=True)
class Change:
    deployment: str
    kind: Kind
    why: tuple[str, ...] = ()


def changes(application: serve.Application) -> list[Change]:
    """One for each deployment there is, or would be."""
    environment = ray.get_runtime_context().runtime_env  # as `serve.run` builds it
    built = build_app(application, name=APP_NAME, default_runtime_env=environment)
    wanted = {each.name: each for each in built.deployments}
    there = _running()
    gone = [Change(name, "goes", ("no longer among the settings",)) for name in sorted(set(there) - set(wanted))]
    return [_change(name, there.get(name), wanted[name]) for name in sorted(wanted)] + gone


def _running() -> dict[str, DeploymentInfo]:
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return {}
    found: Any = ray.get(client._controller.list_deployments_internal.remote())
    return {identity.name: info for identity, (info, _) in found.items() if identity.app_name == APP_NAME}


def _change(name: str, there: DeploymentInfo | None, wanted: serve.Deployment) -> Change:
    if there is None:
        return Change(name, "new")
    before, after = there.deployment_config, wanted._deployment_config
    old = _version(there.version, before, there.replica_config)
    new = _version(wanted.version, after, wanted._replica_config)
    options = tuple(_differences(_told(before), _told(after)))
    if old.requires_actor_restart(new):
        return Change(name, "restarts", (*_reasons(there, wanted), *options))
    return Change(name, "changes in place", options) if options else Change(name, "stays")


def _version(told: str | None, config: Any, replica: Any) -> DeploymentVersion:
    """As Ray makes it, of what this service sets."""
    per_node = replica.max_replicas_per_node
    return DeploymentVersion(told, config, replica.ray_actor_options, max_replicas_per_node=per_node)


def _reasons(there: DeploymentInfo, wanted: serve.Deployment) -> Iterator[str]:
    for part in fingerprint.changed(there.version, wanted.version or ""):
        yield ": ".join((part, *_settings(there, wanted))) if part == "settings" else part
    before, after = there.replica_config.ray_actor_options or {}, wanted.ray_actor_options or {}
    yield from (f"actor {each}" for each in _differences(before, after))
    yield from _differences(_per_node(there.replica_config), _per_node(wanted._replica_config))


def _per_node(replica: Any) -> dict[str, Any]:
    return {"max_per_node": replica.max_replicas_per_node}


def _settings(there: DeploymentInfo, wanted: serve.Deployment) -> Iterator[str]:
    """None where what is bound there can't be read by this release."""
    try:
        bound = fingerprint.document(there.replica_config.init_args)
    except Exception:  # whatever another release's arguments do when they are read
        return
    found = list(_differences(bound, fingerprint.document(wanted.init_args)))
    if found:
        yield ", ".join(found[:_NAMED]) + (f", and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def _told(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.model_dump(mode="json").items() if name not in _NOT_TOLD}


def _differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """By their paths, the values that differ. Positions in lists are no part of one: they mean nothing to a reader."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from _differences(one, other, path)
    elif before != after:
        yield f"{path} {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
