"""Canvas sizes: from the size a client asked for to the size a model renders, and back; of images and videos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from deployments.contract.request import FPS


@dataclass(frozen=True, slots=True)
class Canvas:
    """What is rendered: an image of `frame` pixels in the middle of a canvas whose sides are whole tokens.

    All sizes are (height, width) in pixels, `grid` in tokens.
    """

    frame: tuple[int, int]
    grid: tuple[int, int]
    token: int
    """Pixels per side of a token."""

    @property
    def size(self) -> tuple[int, int]:
        return self.grid[0] * self.token, self.grid[1] * self.token

    @property
    def crop(self) -> tuple[slice, slice]:
        """Where the image lies in the canvas, as (rows, columns)."""
        (height, width), (rows, columns) = self.size, self.frame
        top, left = (height - rows) // 2, (width - columns) // 2
        return slice(top, top + rows), slice(left, left + columns)


MOST_ELONGATED = 4
"""Ratio of the sides of a canvas, at most: longer images are stretched, as no model that draws at one size has seen
any that are longer still."""


def canvas_for(width: int, height: int, token: int, render_side: int | None = None) -> Canvas:
    """The canvas for an image of `width` x `height`.

    Without `render_side` the frame is that size itself. With it, the frame is the whole canvas, whose shorter side is
    that many pixels whatever the size asked for; bringing it to that size afterwards stretches it by a few percent.
    """
    if render_side is None:
        return Canvas((height, width), (math.ceil(height / token), math.ceil(width / token)), token)
    rows, columns = grid_for(width, height, render_side // token)
    return Canvas((rows * token, columns * token), (rows, columns), token)


def grid_for(width: int, height: int, side: int) -> tuple[int, int]:
    """The grid (rows, columns) for an image of `width` x `height`: its shorter side has `side` tokens, or one less.

    Both sides are even, so that the middle of every canvas is a corner of four tokens: what a model draws around it is
    divided into tokens in one way only. The longer side is nearest to the image's ratio.
    """
    shorter = max(2, side // 2 * 2)
    ratio = min(max(width, height) / min(width, height), MOST_ELONGATED)
    below = math.floor(shorter * ratio / 2) * 2
    longer = min((below, below + 2), key=lambda long: abs(math.log(long / shorter / ratio)))
    return (shorter, longer) if width >= height else (longer, shorter)


MAX_LEAD: Final = 25
"""Frames of a video that lead into its continuation, at most: about a second."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Pixels per latent, along a side and along time; latents of sound a second."""

    space: int
    time: int
    audio: float


@dataclass(frozen=True, slots=True)
class VideoShape:
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
    def audio_latents(self) -> int:
        return self.audio_latents_until(self.decoded_frames)

    @property
    def audio_lead(self) -> int:
        return self.audio_latents_until(self.lead)

    def latents_until(self, frames: int) -> int:
        """So many hold the first `frames`; none for none."""
        return -(-(frames - 1) // self.scale.time) + 1 if frames > 0 else 0

    def audio_latents_until(self, frames: int) -> int:
        return round(frames / FPS * self.scale.audio)


def lead_frames(frames: int, time: int) -> int:
    """How many of the last of `frames` lead in: they must fill whole latents."""
    return (min(frames, MAX_LEAD) - 1) // time * time + 1


def video_shape(
    width: int, height: int, *, lead: int, frames: int, scale: Scale, render_side: int | None
) -> VideoShape:
    return VideoShape(canvas_for(width, height, scale.space, render_side), lead, frames, scale)
