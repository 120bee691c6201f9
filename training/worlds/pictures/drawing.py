"""Draws scenes of the little world, many at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.lessons.pictures import Mask
from training.worlds import palette
from training.worlds.pictures.scene import MAX_THINGS, Background, Grid, Scene
from training.worlds.shapes import SHAPES

OUTLINE = 0.25
"""Width of the line around things in outlined style, in tokens."""
_DARK = 0.3


def draw(
    scenes: Sequence[Scene], grid: Grid, resolution: int, samples: int = 2, outlined: bool = False
) -> tuple[Tensor, Tensor]:
    """Pictures (B, 3, H, W) in [-1, 1] and what of them is covered by things, (B, 1, H, W) in [0, 1].

    `resolution` is in pixels per token and side, each of `samples` x `samples` samples. `outlined` puts a line around
    every thing, which is no part of what is covered.
    """
    fine = resolution * samples
    picture = backdrops([scene.background for scene in scenes], grid, fine)
    covered = torch.zeros_like(picture[:, :1])
    for layer in range(MAX_THINGS):
        members = [index for index, scene in enumerate(scenes) if len(scene.things) > layer]
        if not members:
            break
        things = [scenes[index].things[layer] for index in members]
        names, circles = [t.shape for t in things], torch.tensor([t.circle(grid) for t in things])
        if outlined:
            line = silhouettes(names, circles, grid, fine, grown=OUTLINE)
            inks = palette.rgb([ink(scenes[index].background) for index in members], [0.0] * len(members))
            picture[members] = torch.lerp(
                picture[members], inks[:, :, None, None].expand(-1, -1, *line.shape[2:]), line
            )
        cover = silhouettes(names, circles, grid, fine)
        colours = palette.rgb([t.colour for t in things], [t.shade for t in things])[:, :, None, None]
        picture[members] = torch.lerp(picture[members], colours.expand(-1, -1, *cover.shape[2:]), cover)
        covered[members] = torch.maximum(covered[members], cover)
    if samples > 1:
        picture, covered = F.avg_pool2d(picture, samples), F.avg_pool2d(covered, samples)
    return picture, covered


def ink(background: Background) -> str:
    """The colour that outlines have on it."""
    return "white" if sum(palette.COLOURS[background.colour]) / 3 < _DARK else "black"


def silhouettes(names: Sequence[str], circles: Tensor, grid: Grid, resolution: int, grown: float = 0.0) -> Tensor:
    """(B, 1, H, W) in [0, 1]: shapes by name, each at (x, y, half side) of `circles` (B, 3), `grown` by some tokens."""
    y, x = axes(grid, resolution)
    distance = torch.empty(len(names), y.shape[0], x.shape[0])
    for name in dict.fromkeys(names):
        members = [index for index, other in enumerate(names) if other == name]
        left, top, radius = circles[members].T[..., None, None]
        distance[members] = SHAPES[name](x[None, None, :] - left, y[None, :, None] - top, radius)
    pixel = 2 / (min(grid) * resolution)
    return (0.5 - distance / pixel + grown * resolution).clamp(0, 1)[:, None]


def masked(mask: Mask, width: int, height: int) -> Tensor:
    """(height, width), true where the picture is painted anew."""
    top, left, bottom, right = mask.box
    y = ((torch.arange(height) + 0.5) * 2000 / height - top - bottom) / (bottom - top)
    x = ((torch.arange(width) + 0.5) * 2000 / width - left - right) / (right - left)
    distance = torch.hypot(y[:, None], x) if mask.round else torch.maximum(y.abs()[:, None], x.abs()[None])
    return (distance <= 1) ^ mask.outside


def axes(grid: Grid, resolution: int) -> tuple[Tensor, Tensor]:
    """Where rows and columns of pixels lie, from the canvas's middle, in halves of its shorter side."""
    rows, columns = (side * resolution for side in grid)
    unit = 2 / (min(grid) * resolution)
    return (torch.arange(rows) + 0.5 - rows / 2) * unit, (torch.arange(columns) + 0.5 - columns / 2) * unit


def backdrops(backgrounds: Sequence[Background], grid: Grid, resolution: int) -> Tensor:
    """(B, 3, H, W) in [-1, 1]."""
    shares = torch.stack([_share(background.kind, grid, resolution) for background in backgrounds])[:, None]
    first = palette.rgb([b.colour for b in backgrounds], [b.shade for b in backgrounds])
    second = palette.rgb([b.colours[-1] for b in backgrounds], [b.shade for b in backgrounds])
    return torch.lerp(first[:, :, None, None], second[:, :, None, None], shares)


def _share(kind: str, grid: Grid, resolution: int) -> Tensor:
    """(H, W) in [0, 1]: how much of the second colour there is. Patterns follow the tokens."""
    rows = (torch.arange(grid[0] * resolution) + 0.5)[:, None] / resolution
    columns = (torch.arange(grid[1] * resolution) + 0.5)[None, :] / resolution
    match kind:
        case "vertical":
            share = rows / grid[0]
        case "horizontal":
            share = columns / grid[1]
        case "striped":
            share = columns.floor() % 2
        case "checkered":
            share = (rows.floor() + columns.floor()) % 2
        case "dotted":
            distance = torch.hypot(rows % 1 - 0.5, columns % 1 - 0.5) - 0.28
            share = (0.5 - distance * resolution).clamp(0, 1)
        case _:
            share = torch.zeros(1)
    return share.expand(rows.shape[0], columns.shape[1])
