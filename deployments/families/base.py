"""What a model family does for the engine, and which family a checkpoint belongs to.

A family wraps the components of one diffusers pipeline and replaces its loop: it turns jobs into states, says how fast
the latents of a batch move, and turns a finished state into a picture. It keeps nothing about single jobs.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from deployments.contract.job import GenerationJob
from deployments.contract.model import ENHANCE_NOISE, Enlarge
from deployments.engine.backend import JobError
from deployments.families.pictures import Pixels
from deployments.families.state import State

if TYPE_CHECKING:
    from deployments.families.clips import ClipFamily


@dataclass(frozen=True, slots=True)
class Commission:
    """A job together with the bytes of its input pictures; the references are in the job's order."""

    job: GenerationJob
    references: tuple[bytes, ...] = ()
    mask: bytes | None = None
    control: bytes | None = None
    image_prompt: bytes | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how a checkpoint's networks run.

    Pictures are rendered with a shorter side of `render_side` pixels, whatever size was asked for, and scaled to it
    (None: at full size); `enlarge` says how.
    """

    device: torch.device
    dtype: torch.dtype
    local_only: bool = True
    """Whether all components must lie in the checkpoint's folder already."""
    render_side: int | None = None
    enlarge: Enlarge = "smooth"
    distilled: bool = False
    """Of clips: whether the checkpoint was distilled to a few noise levels, which it then gets."""
    enhance_noise: float = ENHANCE_NOISE
    """Over a draft that is enhanced, 0 to 1."""


class Family(Protocol):
    @property
    def transformer(self) -> Any:
        """The network that every step runs: a diffusers model."""
        ...

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        """Raises CheckpointError when a component is missing or broken."""
        ...

    def encode(self, commissions: Sequence[Commission]) -> list[State | JobError]:
        """One state per commission, in order; one that can't be done gets its JobError and the others go on."""
        ...

    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        """(B, N, C) float32 tokens at times `t` (B,), heading for `t_next` (B,), to their velocity (B, N, C)."""
        ...

    def finish(self, state: State) -> Pixels:
        """The picture of a state whose steps are all done, in exactly the job's size."""
        ...

    def preview(self, state: State) -> Pixels | None:
        """A small, cheap picture of where the state is heading; None before its first step."""
        ...


class CheckpointError(Exception):
    """A checkpoint can't be found, read or run. Its text says what to do about it."""


FAMILIES = {
    "FluxPipeline": "deployments.families.flux1:Flux1",
    "FluxKontextPipeline": "deployments.families.flux1:Flux1",
    "FluxFillPipeline": "deployments.families.flux1:Flux1",
    "FluxControlPipeline": "deployments.families.flux1:Flux1",
    "Flux2Pipeline": "deployments.families.flux2:Flux2",
    "Flux2KleinPipeline": "deployments.families.flux2:Flux2",
    "Flux3DistilledModularPipeline": "deployments.families.flux3:Flux3",
    "LTX2Pipeline": "deployments.families.ltx2:Ltx2",
    "LTX2ConditionPipeline": "deployments.families.ltx2:Ltx2",
}
"""Pipeline class, as a checkpoint's index names it, to family. By name: importing every pipeline takes seconds."""

_INDEXES = ("modular_model_index.json", "model_index.json")


def index_of(folder: Path) -> dict[str, Any]:
    """What the index of the checkpoint in `folder` says. Raises CheckpointError when there is none."""
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is None:
        raise CheckpointError(f"{folder} is no checkpoint: it has neither {_INDEXES[0]} nor {_INDEXES[1]}")
    return json.loads(index.read_text())


def family_of(folder: Path) -> type[Family] | type[ClipFamily]:
    """The family of the checkpoint in `folder`, by the pipeline class in its index.

    Raises CheckpointError when there is no index, or none that any family here can run.
    """
    pipeline = str(index_of(folder).get("_class_name"))
    if pipeline not in FAMILIES:
        raise CheckpointError(f"{folder} is a {pipeline}; the families here run {', '.join(sorted(FAMILIES))}")
    module, name = FAMILIES[pipeline].split(":")
    family: type[Family] | type[ClipFamily] = getattr(importlib.import_module(module), name)
    return family
