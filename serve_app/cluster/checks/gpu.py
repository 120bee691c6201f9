"""Checks of GPU memory: every replica must fit its share of a GPU.

`num_gpus` of an actor is its share of a GPU. Ray places at most a whole GPU on one, so if each replica fits its share,
all fit together. A replica needs memory for weights, for the largest step or decoding, for caches, and for a CUDA
context.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deployments.contract.model import ENGINE, RESTORERS, SIMULATED, CacheSizes
from serve_app.cluster.checks.result import CheckResult
from serve_app.config.catalog import Catalog, Model
from serve_app.config.model_settings import MemorySettings
from serve_app.config.settings import Settings

CONTEXT_GB: Final = 0.6
"""Memory of a process that uses CUDA, with its libraries, GB of 10^9 bytes."""
_WHAT: Final = "GPU memory"


def find_gpus() -> list[int]:
    """Returns the memory of each GPU of this machine, bytes."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
        return [int(line) * 2**20 for line in output.split() if line.strip()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


@dataclass(frozen=True, slots=True)
class GpuRequirement:
    """GPU memory of one replica, GB of 10^9 bytes."""

    name: str
    """Section of its settings, such as `models.flux3-klein`."""
    device: str
    gpu_fraction: float
    """Value of `num_gpus`."""
    gpu_gb: float | None
    """Memory of a whole GPU; None if unknown."""
    weights_gb: float
    """Memory of the weights; 0 if unknown."""
    activations_gb: float
    caches_gb: float

    @property
    def total_gb(self) -> float:
        return self.weights_gb + self.activations_gb + self.caches_gb + CONTEXT_GB

    @property
    def share_gb(self) -> float | None:
        return None if self.gpu_gb is None else self.gpu_gb * self.gpu_fraction

    @property
    def fits(self) -> bool:
        return self.share_gb is None or not self.weights_gb or self.total_gb <= self.share_gb


def gpu_requirements(settings: Settings, catalog: Catalog) -> list[GpuRequirement]:
    """Returns the requirements of all replicas that may run on a GPU."""
    all_replicas = [_model_requirement(name, each, settings) for name, each in catalog.models.items()]
    if catalog.rewriter is not None and settings.rewriter.enabled:
        own = settings.rewriter
        memory = catalog.rewriter.on_profile(own).memory
        all_replicas.append(_requirement("rewriter", own.device, own.ray_actor_options, memory, settings.gpu_gb))
    if catalog.moderation is not None and settings.moderation.enabled:
        is_own = bool(settings.moderation.text or settings.moderation.images)
        weights_gb = None if is_own else catalog.moderation.memory_gb
        memory = MemorySettings(weights_gb=weights_gb) if weights_gb else None
        actor = settings.moderation.ray_actor_options
        all_replicas.append(_requirement("moderation", "auto", actor, memory, settings.gpu_gb))
    # Without a share, `auto` is a CPU: Ray hides GPUs from actors that have none.
    return [each for each in all_replicas if each.device != "cpu" and (each.gpu_fraction or each.device != "auto")]


def _model_requirement(name: str, model: Model, settings: Settings) -> GpuRequirement:
    profile = settings.model(name)
    config = model.config(profile)
    memory = profile.memory or (None if profile.checkpoint else model.memory)
    is_diffusion = config.backend not in (ENGINE, *RESTORERS) and not config.checkpoint.startswith(SIMULATED)
    uses_gpu = is_diffusion or memory is not None or bool(profile.ray_actor_options.get("num_gpus"))
    return _requirement(
        f"models.{name}",
        config.device if uses_gpu else "cpu",
        profile.ray_actor_options,
        memory,
        profile.gpu_gb or settings.gpu_gb,
        config.caches if is_diffusion else None,
    )


def _requirement(
    name: str,
    device: str,
    actor: Mapping[str, Any],
    memory: MemorySettings | None,
    gpu_gb: float | None,
    caches: CacheSizes | None = None,
) -> GpuRequirement:
    return GpuRequirement(
        name,
        device,
        float(actor.get("num_gpus") or 0),
        gpu_gb,
        memory.weights_gb if memory else 0.0,
        memory.activations_gb if memory else 0.0,
        sum(caches.model_dump().values()) / 1000 if caches else 0.0,
    )


def check_gpu_memory(settings: Settings, catalog: Catalog) -> Iterator[CheckResult]:
    """Yields nothing if no replica has a share of a GPU."""
    requirements = gpu_requirements(settings, catalog)
    if requirements and settings.ray.address is None and not find_gpus():
        names = ", ".join(each.name for each in requirements)
        message = f"nvidia-smi shows none on this machine, and {names} need one"
        yield CheckResult.refused("GPU", message, "install a GPU with its driver, or set device: cpu without num_gpus")
        return
    if not any(each.gpu_fraction for each in requirements):
        return
    if refused := [result for each in requirements if (result := _check_replica(each))]:
        yield from refused
    elif settings.gpu_gb is None:
        message = "unknown whether models fit their shares of a GPU"
        yield CheckResult.warning(_WHAT, message, "set gpu_gb")
    else:
        yield CheckResult.fine(_WHAT, "every replica fits its share of a GPU")


def _check_replica(replica: GpuRequirement) -> CheckResult | None:
    if not replica.gpu_fraction:
        message = f"{replica.name} runs on {replica.device} without num_gpus: it would use a GPU of other replicas"
        return CheckResult.refused(_WHAT, message, "set num_gpus, or device: cpu")
    if replica.fits:
        return None
    message = (
        f"{replica.name} needs {replica.total_gb:.1f} GB ({replica.weights_gb:.1f} of weights, "
        f"{replica.activations_gb:.1f} of activations, {replica.caches_gb + CONTEXT_GB:.1f} of caches and context), "
        f"and its share of a GPU is {replica.share_gb:.1f} GB"
    )
    return CheckResult.refused(_WHAT, message, "set a larger num_gpus, use a larger GPU, or set enabled: false")
