"""The sizes that pictures are asked for in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from deployments.families.canvas import grid_for
from training.worlds.pictures.scene import CANVAS_SIDE, Grid

Size: TypeAlias = tuple[int, int]
"""Width and height in pixels."""

_NAMED_RATIOS: Final = (
    *("21:9", "2:1", "16:9", "3:2", "7:5", "4:3", "5:4", "1:1"),
    *("4:5", "3:4", "5:7", "2:3", "9:16", "1:2", "9:21"),
)
_MEGAPIXEL: Final = 1024 * 1024


def _size_of(ratio: str) -> Size:
    """At a megapixel, each side the nearest multiple of 16."""
    width, height = map(int, ratio.split(":"))
    return (
        math.floor(math.sqrt(width / height * _MEGAPIXEL) / 16 + 0.5) * 16,
        math.floor(math.sqrt(height / width * _MEGAPIXEL) / 16 + 0.5) * 16,
    )


NAMED_SIZES: Final[Mapping[str, Size]] = MappingProxyType({name: _size_of(name) for name in _NAMED_RATIOS})
"""Every aspect ratio that gen-3-image-klein lists, at its default resolution."""

SIZES: Final[tuple[Size, ...]] = (*NAMED_SIZES.values(), (768, 768))

GRIDS: Final[tuple[Grid, ...]] = ((8, 8), (8, 14), (8, 8), (14, 8), (8, 8), (8, 10), (8, 8), (12, 8))
"""What pictures are drawn on where their size isn't the point: every other one is square."""


def canvas_of(size: Size) -> Grid:
    return grid_for(*size, CANVAS_SIDE)


def size_of(grid: Grid) -> Size:
    """Without any stretch, and in multiples of 32 that all endpoints take."""
    return grid[1] * 64, grid[0] * 64
