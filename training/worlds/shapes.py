"""The shapes of the little worlds as signed distances, after Inigo Quilez' "2D distance functions".

Each fits the square of half side r around its middle; y grows downwards. Distances need to be right near the outline
only, where anti-aliasing looks at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from training.worlds import vocabulary

Shape: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From x, y and r, which broadcast, to the distance from the outline: negative inside."""


def _star(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    fifth = 2 * math.pi / 5
    angle = torch.remainder(torch.atan2(x, -y) + fifth / 2, fifth) - fifth / 2  # every tip becomes the upper one
    distance = torch.hypot(x, y)
    px, py = distance * angle.sin().abs(), distance * angle.cos()
    valley_x, valley_y = 0.45 * math.sin(fifth / 2), 0.45 * math.cos(fifth / 2)
    edge_x, edge_y = valley_x, valley_y - 1.0  # from the tip (0, r) to the valley, times r
    return (edge_x * (py - r) - edge_y * px) * (1 / math.hypot(edge_x, edge_y))


def _heart(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    """A square on its tip, with half circles on its upper sides."""
    half = 0.82 * r  # of the square's diagonal
    down = y - 0.1 * half
    square = (x.abs() + down.abs() - half) * math.sqrt(0.5)
    circle = torch.hypot(x.abs() - half / 2, down + half / 2) - half * math.sqrt(0.5)
    return torch.minimum(square, circle)


def _arrow(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    """To the right."""
    shaft = torch.maximum(y.abs() - 0.26 * r, (x + 0.45 * r).abs() - 0.55 * r)
    head = torch.maximum(-x, 0.6 * (x - r) + 0.8 * y.abs())
    return torch.minimum(shaft, head)


SHAPES: Final[Mapping[str, Shape]] = {
    "circle": lambda x, y, r: torch.hypot(x, y) - r,
    "square": lambda x, y, r: torch.maximum(x.abs(), y.abs()) - 0.86 * r,
    "triangle": lambda x, y, r: torch.maximum(y - 0.75 * r, 0.882 * x.abs() - 0.471 * (y + r)),
    "star": _star,
    "ring": lambda x, y, r: (torch.hypot(x, y) - 0.76 * r).abs() - 0.24 * r,
    "cross": lambda x, y, r: torch.maximum(
        torch.minimum(x.abs(), y.abs()) - 0.32 * r, torch.maximum(x.abs(), y.abs()) - r
    ),
    # Narrower than it is high, lest it is taken for a square on its tip.
    "diamond": lambda x, y, r: (x.abs() * 1.35 + y.abs() - r) * (1 / math.hypot(1.35, 1)),
    "heart": _heart,
    "moon": lambda x, y, r: torch.maximum(torch.hypot(x, y) - r, 0.8 * r - torch.hypot(x - 0.55 * r, y)),
    "arrow": _arrow,
}
NAMES: Final = vocabulary.SHAPES


def silhouette(name: str, circles: Tensor, size: tuple[int, int], grown: float = 0.0) -> Tensor:
    """(B, height, width) in [0, 1]: a shape at each (x, y, half side) of `circles` (B, 3), in pixels.

    `size` is (height, width), from whose upper left corner places are counted. The shape is `grown` by so many pixels.
    """
    rows, columns = (torch.arange(side) + 0.5 for side in size)
    x, y, radius = circles.T[..., None, None]
    return (0.5 + grown - SHAPES[name](columns - x, rows[:, None] - y, radius)).clamp_(0, 1)


def silhouettes(names: Sequence[str], circles: Tensor, size: tuple[int, int], grown: float = 0.0) -> Tensor:
    """The same of several shapes, one for each circle."""
    covers = torch.empty(len(names), *size)
    for name in dict.fromkeys(names):
        members = [index for index, other in enumerate(names) if other == name]
        covers[members] = silhouette(name, circles[members], size, grown)
    return covers
