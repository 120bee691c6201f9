"""From the size a client asked for to the size a model renders at, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Canvas:
    """What is rendered: a picture of `frame` pixels in the middle of a canvas whose sides are whole tokens.

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
        """Where the picture lies in the canvas, as (rows, columns)."""
        (height, width), (rows, columns) = self.size, self.frame
        top, left = (height - rows) // 2, (width - columns) // 2
        return slice(top, top + rows), slice(left, left + columns)


MOST_ELONGATED = 4
"""Ratio of the sides of a canvas, at most: longer pictures are stretched, as no model that draws at one size has seen
any that are longer still."""


def canvas_for(width: int, height: int, token: int, render_side: int | None = None) -> Canvas:
    """The canvas for a picture of `width` x `height`.

    Without `render_side` the frame is that size itself. With it, the frame is the whole canvas, whose shorter side is
    that many pixels whatever the size asked for; bringing it to that size afterwards stretches it by a few percent.
    """
    if render_side is None:
        return Canvas((height, width), (math.ceil(height / token), math.ceil(width / token)), token)
    rows, columns = grid_for(width, height, render_side // token)
    return Canvas((rows * token, columns * token), (rows, columns), token)


def grid_for(width: int, height: int, side: int) -> tuple[int, int]:
    """The grid (rows, columns) for a picture of `width` x `height`: its shorter side has `side` tokens, or one less.

    Both sides are even, so that the middle of every canvas is a corner of four tokens: what a model draws around it is
    divided into tokens in one way only. The longer side is nearest to the picture's ratio.
    """
    shorter = max(2, side // 2 * 2)
    ratio = min(max(width, height) / min(width, height), MOST_ELONGATED)
    below = math.floor(shorter * ratio / 2) * 2
    longer = min((below, below + 2), key=lambda long: abs(math.log(long / shorter / ratio)))
    return (shorter, longer) if width >= height else (longer, shorter)
