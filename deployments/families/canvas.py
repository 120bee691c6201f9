"""Canvas sizes: converts the size a client asked for to the size a model renders, for images and videos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from deployments.contract.request import FPS


@dataclass(frozen=True, slots=True)
class Canvas:
    """A canvas of whole tokens with the image, of `frame` pixels, in its middle.

    Sizes are (height, width) in pixels, `grid` in tokens.
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
        """Position of the image in the canvas, as (rows, columns)."""
        (height, width), (rows, columns) = self.size, self.frame
        top, left = (height - rows) // 2, (width - columns) // 2
        return slice(top, top + rows), slice(left, left + columns)


MAX_ELONGATION = 4
"""Largest ratio of a canvas's sides. Longer images are stretched, as models for one size have seen none."""


def canvas_for(width: int, height: int, token: int, render_side: int | None = None) -> Canvas:
    """Returns the canvas for an image of `width` x `height`.

    Without `render_side` the frame has that size. With it, the frame is the whole canvas, whose shorter side has
    `render_side` pixels; resizing the result to the size asked for stretches it by a few percent.
    """
    if render_side is None:
        return Canvas((height, width), (math.ceil(height / token), math.ceil(width / token)), token)
    rows, columns = grid_for(width, height, render_side // token)
    return Canvas((rows * token, columns * token), (rows, columns), token)


def grid_for(width: int, height: int, side: int) -> tuple[int, int]:
    """Returns the grid (rows, columns) for an image of `width` x `height`. The shorter side has `side` tokens, or one
    less.

    Both sides are even, so that the middle of every canvas is a corner of four tokens: what a model draws around it is
    divided into tokens in one way only. The longer side comes closest to the image's ratio.
    """
    shorter = max(2, side // 2 * 2)
    ratio = min(max(width, height) / min(width, height), MAX_ELONGATION)
    below = math.floor(shorter * ratio / 2) * 2
    longer = min((below, below + 2), key=lambda length: abs(math.log(length / shorter / ratio)))
    return (shorter, longer) if width >= height else (longer, shorter)


MAX_LEAD: Final = 25
"""Frames of a start video that lead into its continuation at most: about a second."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Pixels per latent along a side, frames per latent, and latents of sound per second."""

    space: int
    time: int
    audio: float


@dataclass(frozen=True, slots=True)
class VideoShape:
    """`lead` existing frames, `frames` new ones, and padding to whole latents.

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
        """Number of frames that the latents decode to."""
        return (self.latents - 1) * self.scale.time + 1

    @property
    def audio_latents(self) -> int:
        return self.audio_latents_until(self.decoded_frames)

    @property
    def audio_lead(self) -> int:
        return self.audio_latents_until(self.lead)

    def latents_until(self, frames: int) -> int:
        """Returns the number of latents that hold the first `frames`."""
        return -(-(frames - 1) // self.scale.time) + 1 if frames > 0 else 0

    def audio_latents_until(self, frames: int) -> int:
        return round(frames / FPS * self.scale.audio)


def lead_frames(frames: int, time: int) -> int:
    """Returns how many of the last of `frames` lead in: they must fill whole latents."""
    return (min(frames, MAX_LEAD) - 1) // time * time + 1


def video_shape(
    width: int, height: int, *, lead: int, frames: int, scale: Scale, render_side: int | None
) -> VideoShape:
    return VideoShape(canvas_for(width, height, scale.space, render_side), lead, frames, scale)
