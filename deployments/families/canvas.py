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


def canvas_for(width: int, height: int, token: int, max_pixels: int | None = None) -> Canvas:
    """The canvas for a picture of `width` x `height`.

    Without `max_pixels` the frame is that size itself. With it, a larger picture is rendered at about that many pixels
    in the same ratio, to be enlarged afterwards: for machines where full size would take too long.
    """
    scale = 1.0
    if max_pixels is not None:
        scale = min(1.0, math.sqrt(max_pixels / (width * height)))
    frame = max(1, round(height * scale)), max(1, round(width * scale))
    return Canvas(frame=frame, grid=(math.ceil(frame[0] / token), math.ceil(frame[1] / token)), token=token)
