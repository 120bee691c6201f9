"""Draws scenes of the world of pictures, many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from deployments.wording.thing import MOST
from training.worlds import palette, vocabulary
from training.worlds.pictures.scene import Background, Grid, Mask, Scene, Thing
from training.worlds.shapes import silhouettes

Pixels: TypeAlias = NDArray[np.uint8]
"""(height, width, 3), RGB."""

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
    for members, things in layers(scenes):
        if outlined:
            inks = palette.rgb([ink(scenes[index].background) for index in members])[..., None, None]
            line = covers(things, grid, fine, grown=OUTLINE)
            picture[members] = torch.lerp(picture[members], inks, line)
        colours = palette.rgb([thing.colour for thing in things], [thing.shade for thing in things])[..., None, None]
        cover = covers(things, grid, fine)
        picture[members] = torch.lerp(picture[members], colours, cover)
        covered[members] = torch.maximum(covered[members], cover)
    return F.avg_pool2d(picture, samples), F.avg_pool2d(covered, samples)


def layers(scenes: Sequence[Scene]) -> Iterator[tuple[list[int], list[Thing]]]:
    """The first things of all scenes that have one, then the second ones...: each with the indices of their scenes."""
    for layer in range(MOST):
        members = [index for index, scene in enumerate(scenes) if len(scene.things) > layer]
        if members:
            yield members, [scenes[index].things[layer] for index in members]


def covers(things: Sequence[Thing], grid: Grid, resolution: int, grown: float = 0.0) -> Tensor:
    """(B, 1, H, W) in [0, 1]: where things are, `grown` by some tokens."""
    height, width = (side * resolution for side in grid)
    circles = torch.tensor([thing.circle(grid) for thing in things]) * resolution
    circles += torch.tensor([width / 2, height / 2, 0])
    return silhouettes([thing.shape for thing in things], circles, (height, width), grown * resolution)[:, None]


def ink(background: Background) -> str:
    """The colour that outlines have on it."""
    return "white" if sum(vocabulary.COLOURS[background.colour]) / 3 < _DARK else "black"


def backdrops(backgrounds: Sequence[Background], grid: Grid, resolution: int) -> Tensor:
    """(B, 3, H, W) in [-1, 1]."""
    shares = torch.stack([second_share(background.kind, grid, resolution) for background in backgrounds])[:, None]
    shades = [background.shade for background in backgrounds]
    first, second = (
        palette.rgb([background.colours[end] for background in backgrounds], shades)[..., None, None] for end in (0, -1)
    )
    return torch.lerp(first, second, shares)


def second_share(kind: str, grid: Grid, resolution: int) -> Tensor:
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


def masked(mask: Mask, width: int, height: int) -> Tensor:
    """(height, width), true where the picture is painted anew."""
    top, left, bottom, right = mask.box
    y = ((torch.arange(height) + 0.5) * 2000 / height - top - bottom) / (bottom - top)
    x = ((torch.arange(width) + 0.5) * 2000 / width - left - right) / (right - left)
    distance = torch.hypot(y[:, None], x) if mask.round else torch.maximum(y.abs()[:, None], x.abs()[None])
    return (distance <= 1) ^ mask.outside


def drawn(scene: Scene, grid: Grid, size: tuple[int, int], outlined: bool = False) -> Pixels:
    """A scene as clients would send it: drawn for a canvas, stretched to `size` (width, height)."""
    resolution = math.ceil(max(size[0] / grid[1], size[1] / grid[0]))
    picture, _ = draw([scene], grid, resolution, samples=1, outlined=outlined)
    pixels = in_pixels(picture)[0]
    if pixels.shape[1::-1] == size:
        return pixels
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def drawn_mask(mask: Mask, size: tuple[int, int]) -> NDArray[np.uint8]:
    """(height, width): 255 where the picture is painted anew, else 0."""
    return np.where(masked(mask, *size).numpy(), 255, 0).astype(np.uint8)


def in_pixels(pictures: Tensor) -> NDArray[np.uint8]:
    """(B, 3, H, W) in [-1, 1] to (B, H, W, 3)."""
    return ((pictures + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()
