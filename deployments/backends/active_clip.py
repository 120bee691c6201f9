"""One clip between two of the engine's steps: first it is denoised, then its file is written, part by part."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import prod

from deployments.backends.clip_export import ClipExport
from deployments.backends.start_clip import StartClip
from deployments.contract.job import GenerationJob
from deployments.families.clip_state import ClipState


@dataclass(eq=False, slots=True)
class ActiveClip:
    """Implements engine.backend.StateLike. A part that is written counts as a step."""

    clip: ClipState
    start: StartClip | None = None
    """The clip to go on from, which is copied before the new frames."""
    export: ClipExport | None = None
    """The file, once it is begun."""

    @property
    def job(self) -> GenerationJob:
        return self.clip.job

    @property
    def key(self) -> Hashable:
        return self.clip.is_denoised

    @property
    def tokens(self) -> int:
        return prod(self.clip.shape.grid)

    @property
    def parts(self) -> int:
        """In which the file will be written."""
        return self.clip.chunks + (self.start.chunks if self.start is not None else 0)

    @property
    def done_steps(self) -> int:
        return self.clip.i + (self.export.done if self.export is not None else 0)

    @property
    def total_steps(self) -> int:
        return self.clip.steps + self.parts

    @property
    def steps_alike(self) -> int:
        return (self.total_steps if self.clip.is_denoised else self.clip.steps) - self.done_steps
