"""Checkpoints that replicas load, by settings and catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deployments.contract.checkpoint_layout import ANY_WEIGHTS, TEXT_ENCODERS, WeightsChoice, loaded_files
from deployments.contract.hub_files import (
    CheckpointKind,
    HubFiles,
    find_hub_files,
    linked_repositories,
    local_checkpoint,
)
from deployments.contract.model import ENGINE, NETWORKS, RESTORERS, SIMULATED
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings

_LISTS: Final = ("lexicon", "known-images")
"""Classifiers that read a file of this machine, without a model."""
_ACCELERATOR: Final = 0.001
"""Amount of a node's resource `accelerator_type:` that Ray reserves."""


@dataclass(frozen=True, slots=True)
class RequiredCheckpoint:
    """A checkpoint that replicas of one deployment load."""

    loaded_by: str
    """Model or other part of the service that loads it."""
    checkpoint: str
    revision: str | None = None
    kind: CheckpointKind = CheckpointKind.PIPELINE
    gpus: float = 0.0
    """Share of a GPU of a replica; 0 if the checkpoint does not fill it."""
    actor: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Ray's options of a replica, which decide on its node."""
    weights: WeightsChoice = ANY_WEIGHTS
    infers_configs: bool = False
    """True for a .safetensors file whose configuration diffusers fetches from the hub."""

    def files(self) -> HubFiles | None:
        """Returns its files on the hub; None if it is local."""
        return find_hub_files(self.kind, self.checkpoint, self.revision, self.weights)

    def local_files(self, path: Path) -> Iterator[Path]:
        """Yields the files below `path` that are loaded."""
        if self.kind is CheckpointKind.PIPELINE and path.is_dir():
            yield from loaded_files(path, self.weights)
        else:
            yield from [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file())

    def path(self) -> Path | None:
        """Returns its path on this machine; None if it is the hub's and not all of it is here."""
        files = self.files()
        if files is None:
            return local_checkpoint(self.kind, self.checkpoint)
        folder = files.cached_folder()
        try:
            return folder if folder and all(each.cached_folder() for each in linked_repositories(folder)) else None
        except ValueError:  # broken, for replicas too
            return None

    def fits(self, resources: Mapping[str, float]) -> bool:
        """Returns whether a replica could run on a node with these total resources, by Ray's names."""
        amounts = {
            "CPU": self.actor.get("num_cpus"),
            "GPU": self.actor.get("num_gpus"),
            "memory": self.actor.get("memory"),
        }
        amounts |= self.actor.get("resources") or {}
        if accelerator := self.actor.get("accelerator_type"):
            amounts[f"accelerator_type:{accelerator}"] = _ACCELERATOR
        return all(resources.get(name, 0) >= (amount or 0) for name, amount in amounts.items())


@dataclass(frozen=True, slots=True)
class LiveNode:
    name: str
    id: str
    checkpoints: tuple[RequiredCheckpoint, ...]
    """Checkpoints that replicas on this node may load."""


def live_nodes(checkpoints: Sequence[RequiredCheckpoint]) -> list[LiveNode]:
    """Returns the nodes of the joined cluster."""
    import ray

    return [
        LiveNode(
            f"node {each['NodeManagerAddress']}",
            each["NodeID"],
            tuple(one for one in checkpoints if one.fits(each["Resources"])),
        )
        for each in ray.nodes()
        if each["Alive"]
    ]


def required_checkpoints(settings: Settings, catalog: Catalog) -> tuple[RequiredCheckpoint, ...]:
    """Returns the checkpoints of models in the order of the catalog, then the others."""
    return (
        *(each for name in catalog.models for each in _model_checkpoints(name, settings, catalog)),
        *_text_encoder_checkpoints(settings),
        *_rewriter_checkpoints(settings, catalog),
        *_classifier_checkpoints(settings, catalog),
    )


def _model_checkpoints(name: str, settings: Settings, catalog: Catalog) -> Iterator[RequiredCheckpoint]:
    config = catalog.models[name].config(settings.model(name))
    actor = settings.model(name).ray_actor_options
    checkpoint, revision, is_diffusion = config.checkpoint, config.revision, config.backend not in RESTORERS
    if checkpoint.startswith(SIMULATED) or config.backend == ENGINE:
        return
    if is_diffusion or config.backend in NETWORKS:
        kind = CheckpointKind.PIPELINE if is_diffusion and not config.is_single_file else CheckpointKind.NETWORK
        infers_configs = config.is_single_file and config.config_from is None
        yield RequiredCheckpoint(
            name, checkpoint, revision, kind, _gpu_share(actor), actor, config.weights, infers_configs
        )
    if config.config_from:
        yield RequiredCheckpoint(
            f"configuration of {name}", config.config_from, kind=CheckpointKind.CONFIGS, actor=actor
        )
    for part, file in config.quantization.gguf_files.items() if config.quantization else ():
        yield RequiredCheckpoint(f"{part} of {name}", file, kind=CheckpointKind.NETWORK, actor=actor)
    for each in config.loras:
        yield RequiredCheckpoint(f"adapter of {name}", each.file, kind=CheckpointKind.NETWORK, actor=actor)
    for part, component in config.components.items():
        yield RequiredCheckpoint(f"{part} of {name}", component, kind=CheckpointKind.PRETRAINED, actor=actor)
    if config.redux and not config.is_generic:
        yield RequiredCheckpoint(f"image prompts of {name}", config.redux, actor=actor)
    matting = config.matting
    if is_diffusion and matting.backend in NETWORKS and matting.checkpoint:
        yield RequiredCheckpoint(
            f"matting of {name}", matting.checkpoint, matting.revision, CheckpointKind.NETWORK, actor=actor
        )
    if any(each.takes_finetunes and each.model == name for each in catalog.served.values()):
        base, base_revision = (config.config_from, None) if config.config_from else (checkpoint, revision)
        actor = settings.service.ray_actor_options
        yield RequiredCheckpoint(f"uploads for {name}", base, base_revision, CheckpointKind.CONFIGURATION, actor=actor)


def _text_encoder_checkpoints(settings: Settings) -> Iterator[RequiredCheckpoint]:
    for name, each in settings.text_encoders.items():
        actor = each.ray_actor_options
        loaded_by = f"text encoder {name}"
        yield RequiredCheckpoint(loaded_by, each.checkpoint, each.revision, actor=actor, weights=TEXT_ENCODERS)


def _rewriter_checkpoints(settings: Settings, catalog: Catalog) -> Iterator[RequiredCheckpoint]:
    if catalog.rewriter is not None and settings.rewriter.enabled:
        model, actor = catalog.rewriter.on_profile(settings.rewriter), settings.rewriter.ray_actor_options
        gpus = _gpu_share(actor)
        yield RequiredCheckpoint("rewriter", model.checkpoint, model.revision, CheckpointKind.PRETRAINED, gpus, actor)


def _classifier_checkpoints(settings: Settings, catalog: Catalog) -> Iterator[RequiredCheckpoint]:
    defaults, own = catalog.moderation, settings.moderation
    if defaults is None or not own.enabled:
        return
    for each in (*(own.text or defaults.text), *(own.images or defaults.images)):
        if each.checkpoint:
            kind = CheckpointKind.LIST if each.backend in _LISTS else CheckpointKind.PRETRAINED
            loaded_by, actor = f"classifier {each.backend}", own.ray_actor_options
            yield RequiredCheckpoint(loaded_by, each.checkpoint, each.revision, kind, actor=actor)


def _gpu_share(actor: Mapping[str, Any]) -> float:
    return float(actor.get("num_gpus") or 0)
