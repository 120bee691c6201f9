"""How large a clip is while it is made: in pixels, in latents, in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deployments.contract.clip import FPS
from deployments.families.canvas import Canvas, canvas_for

MAX_LEAD: Final = 25
"""Frames of a video that lead into its continuation, at most: about a second."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Pixels per latent, along a side and along time; latents of sound a second."""

    space: int
    time: int
    sound: float


@dataclass(frozen=True, slots=True)
class ClipShape:
    """`lead` frames that there are already, then `frames` new ones, then what fills the last latent.

    The first latent stands for one frame, each further one for `scale.time`.
    """

    canvas: Canvas
    lead: int
    frames: int
    scale: Scale

    @property
    def lead_latents(self) -> int:
        return self.latents_until(self.lead)

    @property
    def latents(self) -> int:
        return self.latents_until(self.lead + self.frames)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tokens as (latents, rows, columns)."""
        return self.latents, *self.canvas.grid

    @property
    def tokens(self) -> int:
        latents, rows, columns = self.grid
        return latents * rows * columns

    @property
    def decoded_frames(self) -> int:
        """Frames that the latents decode to."""
        return (self.latents - 1) * self.scale.time + 1

    @property
    def sound_latents(self) -> int:
        return self.sound_latents_until(self.decoded_frames)

    @property
    def sound_lead(self) -> int:
        return self.sound_latents_until(self.lead)

    def latents_until(self, frames: int) -> int:
        """So many hold the first `frames`; none for none."""
        return -(-(frames - 1) // self.scale.time) + 1 if frames > 0 else 0

    def sound_latents_until(self, frames: int) -> int:
        return round(frames / FPS * self.scale.sound)


def lead_of(frames: int, time: int) -> int:
    """How many of the last of `frames` lead in: they must fill whole latents."""
    return (min(frames, MAX_LEAD) - 1) // time * time + 1


def shape_of(width: int, height: int, *, lead: int, frames: int, scale: Scale, render_side: int | None) -> ClipShape:
    return ClipShape(canvas_for(width, height, scale.space, render_side), lead, frames, scale)
