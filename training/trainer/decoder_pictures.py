"""Pictures a decoder learns from: scenes of the little world, and flat pictures of any colours and outlines."""

from __future__ import annotations

import math
from random import Random
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from training.worlds.pictures.drawing import draw
from training.worlds.pictures.scene import Grid, random_scene
from training.worlds.shapes import SHAPES

TOKEN: Final = 16
"""Pixels of a token's side."""

GRIDS: Final[tuple[Grid, ...]] = ((8, 8), (8, 8), (8, 14), (14, 8), (8, 12), (12, 8), (8, 10), (10, 8), (8, 8))
CROPS: Final = ((64, 64),) * 5 + ((48, 80), (80, 48), (128, 128), (96, 176), (176, 96))
"""Heights and widths. Small ones have more different pictures and more of a border in a batch of the same cost; the
large ones are there because group norms look at the whole picture."""
AREA: Final = 4 * 64 * 64
"""Pixels of a batch, about."""

WORLD: Final = 0.6
"""How many batches show the little world; the others are what clients may send as references."""
_SAMPLES: Final = 2


def practice(random: Random) -> Tensor:
    """(B, 3, H, W) in [-1, 1]."""
    height, width = random.choice(CROPS)
    count = max(1, round(AREA / (height * width)))
    if random.random() < WORLD:
        return _world(random, count, height, width)
    return torch.cat([free_picture(random, height, width) for _ in range(count)])


def _world(random: Random, count: int, height: int, width: int) -> Tensor:
    fitting = [grid for grid in GRIDS if grid[0] * TOKEN >= height and grid[1] * TOKEN >= width]
    grid = random.choice(fitting)
    # Drawing is a good part of a step's cost, so a scene is cropped twice.
    scenes = [random_scene(random, grid, random.randint(0, 3), plain=0.55) for _ in range((count + 1) // 2)]
    pictures, _ = draw(scenes, grid, TOKEN, _SAMPLES)
    return torch.stack([_crop(random, pictures[index // 2], height, width) for index in range(count)])


def _crop(random: Random, picture: Tensor, height: int, width: int) -> Tensor:
    """The liveliest of a few, as most of a picture is plain. Half keep the phase of patterns, which follow tokens."""
    step = random.choice((1, TOKEN))
    crops = []
    for _ in range(3):
        top = step * random.randint(0, (picture.shape[1] - height) // step)
        left = step * random.randint(0, (picture.shape[2] - width) // step)
        crops.append(picture[:, top : top + height, left : left + width])
    return max(crops, key=lambda crop: float(crop.diff(dim=2).abs().sum()))


def free_picture(random: Random, height: int, width: int) -> Tensor:
    """(1, 3, H, W): a backdrop, turned shapes of any size and colour over it, and thin lines; some out of focus."""
    fine = height * _SAMPLES, width * _SAMPLES
    y, x = (torch.arange(side, dtype=torch.float32) + 0.5 for side in fine)
    picture = _filling(random, fine, flat=0.4)
    for _ in range(random.randint(0, 7)):
        distance = (_line if random.random() < 0.25 else _shape)(random, y[:, None], x[None, :])
        picture = torch.lerp(picture, _filling(random, fine, flat=0.85), (0.5 - distance).clamp(0, 1))
    picture = F.avg_pool2d(picture, _SAMPLES)
    if random.random() < 0.1:
        picture = F.avg_pool2d(F.pad(picture, (2, 2, 2, 2), mode="replicate"), 5, stride=1)
    return picture


def _filling(random: Random, size: tuple[int, int], flat: float) -> Tensor:
    """One colour with probability `flat`, otherwise a gradient or soft clouds as in photographs."""
    if random.random() < flat:
        return (torch.rand(1, 3, 1, 1) * 2 - 1).expand(-1, -1, *size)
    knots = random.choice(((2, 2), (2, 2), (3, 3), (5, 5), (9, 9)))
    clouds = torch.rand(1, 3, *knots) * 2 - 1
    return F.interpolate(clouds, size=size, mode="bicubic", align_corners=True).clamp(-1, 1)


def _shape(random: Random, y: Tensor, x: Tensor) -> Tensor:
    across, down = _turned(random, y, x)
    radius = torch.tensor(_SAMPLES * math.exp(random.uniform(math.log(3), math.log(48))))
    return random.choice(tuple(SHAPES.values()))(across, down, radius)


def _line(random: Random, y: Tensor, x: Tensor) -> Tensor:
    across, down = _turned(random, y, x)
    half_width, half_length = _SAMPLES * random.uniform(0.5, 3), _SAMPLES * random.uniform(5, 99)
    return torch.maximum(down.abs() - half_width, across.abs() - half_length)


def _turned(random: Random, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates around a random middle, turned: half of all outlines are upright, as most drawings' are."""
    angle = random.choice((0.0, random.uniform(0, 2 * math.pi)))
    left, top = x - random.random() * x.shape[1], y - random.random() * y.shape[0]
    return left * math.cos(angle) + top * math.sin(angle), top * math.cos(angle) - left * math.sin(angle)
