"""GPU memory: what replicas need, against their shares of a GPU and the weights on a node.

`num_gpus` of an actor is its share of a GPU. Ray places no more than a whole GPU on one, so where each replica fits its
share, all fit together. A replica needs its weights, what a step or a decoding takes at the largest size, its caches,
and a CUDA context.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from huggingface_hub.constants import HF_HUB_OFFLINE

from deployments.contract.checkpoint_layout import INDEXES, SAFETENSORS, file_problem, find_problem, load_index
from deployments.contract.hub_files import CheckpointKind
from deployments.contract.model import ENGINE, RESTORERS, SIMULATED, CacheSizes
from serve_app.cluster.finding import Finding, fine, refusal, warning
from serve_app.cluster.weights import RequiredCheckpoint
from serve_app.config.catalog import Catalog, Model
from serve_app.config.model_settings import MemorySettings, ModelSettings
from serve_app.config.settings import Settings

_WEIGHTS: Final = (".safetensors", ".bin", ".onnx", ".pt", ".pth")
_GIB: Final = 2**30
_WHAT: Final = "weights"
_FETCH: Final = "gen-serve weights fetch"
_ACCEPTED: Final = "a folder as diffusers saves it, with model_index.json and each component, or one .safetensors file"


def check_weights(checkpoints: Sequence[RequiredCheckpoint], where: str) -> Iterator[Finding]:
    """On this machine."""
    here = gpus()
    missing, whole = set(), bool(checkpoints)
    for each in checkpoints:
        place = each.place()
        if place is None:
            missing.add(each.checkpoint)
            whole = False
        elif not place.exists() or not os.access(place, os.R_OK):
            why = "" if place.exists() else ": there is no such file or folder"
            message = f"{each.who}: {each.checkpoint} can't be read{why}"
            yield refusal(_WHAT, where, message, "put it there, readable")
            whole = False
        elif problem := _problem(each, place):
            yield refusal(_WHAT, where, f"{each.who}: {each.checkpoint}: {problem}", _ACCEPTED)
            whole = False
        elif each.infers_configs and HF_HUB_OFFLINE:
            message = f"{each.who}: HF_HUB_OFFLINE is set, and {each.checkpoint} has no configuration here"
            yield refusal(_WHAT, where, message, "config_from: a folder, or a repository that was fetched")
            whole = False
        elif here and each.gpus and (size := _size(each, place)) > (room := min(here) * each.gpus):
            message = f"{each.who}: {size / _GIB:.0f} GiB of weights, {room / _GIB:.0f} GiB of a GPU"
            yield warning("GPU memory", where, message, "a larger GPU, or a larger num_gpus in its actor")
    if missing:
        names = ", ".join(sorted(missing))
        if HF_HUB_OFFLINE:
            yield refusal(_WHAT, where, f"not here, and HF_HUB_OFFLINE is set: {names}", _FETCH)
        else:
            yield warning(_WHAT, where, f"not here yet: {names}", f"{_FETCH}; else the first replica of each does")
    if whole:
        yield fine(_WHAT, where, "all here")
    if here:
        yield fine("GPU memory", where, f"{len(here)} of {min(here) / _GIB:.0f} GiB at least")


def _problem(checkpoint: RequiredCheckpoint, place: Path) -> str | None:
    """Returns why replicas can't load a checkpoint, as far as its files show."""
    match checkpoint.kind:
        case CheckpointKind.PIPELINE:
            return find_problem(place, checkpoint.weights)
        case CheckpointKind.CONFIGS if load_index(place) is None:
            return f"it has no readable {INDEXES[1]}"
        case CheckpointKind.NETWORK if checkpoint.checkpoint.endswith(SAFETENSORS):
            return file_problem(place)
        case _:
            return None


def _size(checkpoint: RequiredCheckpoint, place: Path) -> int:
    """Returns the bytes of its weights; links lead into the hub's cache."""
    return sum(file.stat().st_size for file in checkpoint.local_files(place) if file.suffix in _WEIGHTS)


def gpus() -> list[int]:
    """The memory of each, in bytes; empty where there are none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
        return [int(line) * 2**20 for line in output.split() if line.strip()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


CONTEXT_GB: Final = 0.6
"""Of a process that uses CUDA, with its libraries."""
_GPU_MEMORY_WHAT: Final = "GPU memory"
_WHERE: Final = "settings"


@dataclass(frozen=True, slots=True)
class Need:
    """Of one replica, in GB of 10^9 bytes."""

    who: str
    """Its settings: `models.flux3-klein`."""
    device: str
    gpu_fraction: float
    """`num_gpus`."""
    gpu_gb: float | None
    weights_gb: float
    activations_gb: float
    caches_gb: float

    @property
    def total_gb(self) -> float:
        return self.weights_gb + self.activations_gb + self.caches_gb + CONTEXT_GB

    @property
    def room_gb(self) -> float | None:
        return None if self.gpu_gb is None else self.gpu_gb * self.gpu_fraction

    @property
    def fits(self) -> bool:
        return self.room_gb is None or not self.weights_gb or self.total_gb <= self.room_gb


def needs(settings: Settings, catalog: Catalog) -> list[Need]:
    """Of all that may run on a GPU. Where its memory is not known, `weights_gb` is 0."""
    result = [_model_need(name, model, settings.model(name), settings) for name, model in catalog.models.items()]
    if catalog.rewriter is not None and settings.rewriter.enabled:
        memory = settings.rewriter.memory or (None if settings.rewriter.checkpoint else catalog.rewriter.memory)
        result.append(
            _build_need("rewriter", settings.rewriter.device, settings.rewriter.ray_actor_options, memory, settings)
        )
    if catalog.moderation is not None and settings.moderation.enabled:
        own = settings.moderation.text or settings.moderation.images
        memory = (
            None if own or not catalog.moderation.memory_gb else MemorySettings(weights_gb=catalog.moderation.memory_gb)
        )
        result.append(_build_need("moderation", "auto", settings.moderation.ray_actor_options, memory, settings))
    # Without a share, `auto` is a processor: Ray hides GPUs from actors that have none.
    return [need for need in result if need.device != "cpu" and (need.gpu_fraction or need.device != "auto")]


def check_gpu_memory(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """What can't work, for every replica with a share of a GPU; nothing where none has."""
    all_needs = needs(settings, catalog)
    if all_needs and settings.ray.address is None and not gpus():
        message = (
            f"this machine has none that nvidia-smi shows, and {', '.join(need.who for need in all_needs)} need one"
        )
        yield refusal("GPU", _WHERE, message, "a GPU with its driver, or device: cpu and no num_gpus")
        return
    if not any(need.gpu_fraction for need in all_needs):
        return
    good = True
    for need in all_needs:
        if not need.gpu_fraction:
            message = f"{need.who} runs on {need.device}, and its actor has no num_gpus: it would take a GPU of others"
            yield refusal(_GPU_MEMORY_WHAT, _WHERE, message, "a num_gpus in its actor, or device: cpu")
            good = False
        elif not need.fits:
            message = (
                f"{need.who} needs {need.total_gb:.1f} GB ({need.weights_gb:.1f} of weights, {need.activations_gb:.1f} "
                f"of activations, {need.caches_gb + CONTEXT_GB:.1f} of caches and context), and its share of a GPU is "
                f"{need.room_gb:.1f} GB"
            )
            yield refusal(
                _GPU_MEMORY_WHAT, _WHERE, message, "a larger num_gpus in its actor, a larger GPU, or enabled: false"
            )
            good = False
    if good and settings.gpu_gb is None:
        yield warning(_GPU_MEMORY_WHAT, _WHERE, "not known whether models fit their shares of a GPU", "set gpu_gb")
    elif good:
        yield fine(_GPU_MEMORY_WHAT, _WHERE, "every replica fits its share of a GPU")


def _model_need(name: str, model: Model, chosen: ModelSettings, settings: Settings) -> Need:
    config = model.config(chosen)
    memory = chosen.memory or (None if chosen.checkpoint else model.memory)
    diffusion = config.backend not in (ENGINE, *RESTORERS) and not config.checkpoint.startswith(SIMULATED)
    device = (
        config.device
        if diffusion or memory
        else "cpu"
        if not chosen.ray_actor_options.get("num_gpus")
        else config.device
    )
    caches = config.caches if diffusion else None
    return _build_need(
        f"models.{name}", device, chosen.ray_actor_options, memory, settings, caches=caches, gpu_gb=chosen.gpu_gb
    )


def _build_need(
    who: str,
    device: str,
    actor: Mapping[str, Any],
    memory: MemorySettings | None,
    settings: Settings,
    *,
    caches: CacheSizes | None = None,
    gpu_gb: float | None = None,
) -> Need:
    return Need(
        who,
        device,
        float(actor.get("num_gpus") or 0),
        gpu_gb or settings.gpu_gb,
        memory.weights_gb if memory else 0.0,
        memory.activations_gb if memory else 0.0,
        sum(caches.model_dump().values()) / 1000 if caches else 0.0,
    )
