"""What a family of video models does for the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor

from deployments.contract.job import GenerationJob
from deployments.families.clip_shape import ClipShape, Scale
from deployments.families.clip_state import ClipState
from deployments.families.placement import Placement
from deployments.pictures.pixels import Pixels
from deployments.video.sound import Sound


@dataclass(frozen=True, slots=True)
class Draft:
    """The latents of a clip, (1, C, F, h, w) of the picture and (1, C, L, bands) of the sound, float32."""

    picture: Tensor
    sound: Tensor


@dataclass(frozen=True, slots=True)
class ClipInputs:
    """What a clip is made from, beside words.

    Frames and keyframes have any size. Those of `lead` are the last of the clip to go on from, as many as `lead_of`
    says, and `lead_sound` is what is heard with them.
    """

    keyframes: tuple[Pixels, ...] = ()
    lead: Pixels | None = None
    """(F, H, W, 3)."""
    lead_sound: Sound | None = None
    draft: Draft | None = None


@runtime_checkable
class ClipFamily(Protocol):
    @property
    def transformer(self) -> Any:
        """The network that every step runs: a diffusers model."""
        ...

    @property
    def scale(self) -> Scale: ...

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        """Raises CheckpointError when a component is missing or broken."""
        ...

    def shape(self, job: GenerationJob, lead: int) -> ClipShape:
        """How large the job's clip is while it is made, given how many frames lead in."""
        ...

    def encode(self, job: GenerationJob, inputs: ClipInputs) -> ClipState:
        """The clip before its first step. Raises JobError."""
        ...

    def step(self, state: ClipState) -> None:
        """One denoising step; all or nothing. Raises NotFinite."""
        ...

    def frames(self, state: ClipState) -> Iterator[Pixels]:
        """The new frames, in `state.chunks` parts, each (F, height, width, 3) of the rendered frame's size.

        Raises NotFinite, part by part.
        """
        ...

    def heard(self, state: ClipState) -> Sound:
        """What is to be heard with the new frames. Raises NotFinite."""
        ...

    def still(self, state: ClipState) -> Pixels | None:
        """The first new frame, as far as it can be seen by now; None before the first step."""
        ...

    def draft(self, state: ClipState) -> Draft:
        """What another pass can begin from."""
        ...

    def probe(self) -> Tensor:
        """What one step makes of a tiny clip. Raises whatever goes wrong."""
        ...
