"""What decoders practise with: scenes of the little world and flat pictures of any colours, and latents a bit off.

Pictures are small crops, whose borders all are ones that a decoder pads with zeros: it learns to undo the padding. Half
of the latents are noisy, and some a little blurred, as those of a diffusion model never are perfect.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from training.worlds.pictures.drawing import draw
from training.worlds.pictures.scene import TOKEN, Grid, random_scene
from training.worlds.shapes import SHAPES

GRIDS: Final[tuple[Grid, ...]] = ((8, 8), (8, 8), (8, 14), (14, 8), (8, 12), (12, 8), (8, 10), (10, 8), (8, 8))
CROPS: Final = ((64, 64),) * 5 + ((48, 80), (80, 48), (128, 128), (96, 176), (176, 96))
"""Heights and widths. Small ones have more different pictures and more of a border in a batch of the same cost; the
large ones are there because group norms look at the whole picture."""
AREA: Final = 4 * 64 * 64
"""Pixels of a batch, about."""
WORLD: Final = 0.6
"""How many batches show the little world; the others are what clients may send as references."""
NOISE: Final = 0.15
"""Most by which latents are disturbed, as a standard deviation."""
BLUR: Final = 0.1
"""The most that blocks of 4 x 4 pixels have of each neighbour."""
_SAMPLES: Final = 2


def practice(random: Random) -> tuple[Tensor, Tensor]:
    """Latents (B, 12, H/8, W/8), often a little off, and their pictures (B, 3, H, W) in [-1, 1]."""
    height, width = random.choice(CROPS)
    count = max(1, round(AREA / (height * width)))
    make = _crops if random.random() < WORLD else _free_pictures
    pictures = make(random, count, height, width)
    seen = latents(_blurred(pictures, random.uniform(0, BLUR)) if random.random() < 0.25 else pictures)
    if random.random() < 0.5:
        seen = seen + NOISE * torch.rand(len(seen), 1, 1, 1) * torch.randn_like(seen)
    return seen, pictures


def latents(pictures: Tensor) -> Tensor:
    """What the encoder makes of pictures, by its formula."""
    return F.pixel_unshuffle(F.avg_pool2d(pictures, 4), 2)


def _blurred(pictures: Tensor, share: float) -> Tensor:
    averages = F.pad(F.avg_pool2d(pictures, 4), (1, 1, 1, 1), mode="replicate")
    taps = torch.tensor([share, 1 - 2 * share, share])
    kernel = torch.outer(taps, taps).expand(3, 1, 3, 3)
    return F.interpolate(F.conv2d(averages, kernel, groups=3), scale_factor=4.0)


def _crops(random: Random, count: int, height: int, width: int) -> Tensor:
    """Of scenes, each of which is cropped twice: drawing is a good part of a step's cost."""
    grid = random.choice([grid for grid in GRIDS if grid[0] * TOKEN >= height and grid[1] * TOKEN >= width])
    scenes = [random_scene(random, grid, random.randint(0, 3), plain=0.55) for _ in range((count + 1) // 2)]
    drawn, _ = draw(scenes, grid, TOKEN, _SAMPLES)
    return torch.stack([_crop(random, drawn[index // 2], height, width) for index in range(count)])


def _crop(random: Random, picture: Tensor, height: int, width: int) -> Tensor:
    """The liveliest of a few, as most of a picture is plain. Half keep the phase of patterns, which follow tokens."""
    step = random.choice((1, TOKEN))
    crops = []
    for _ in range(3):
        top = step * random.randint(0, (picture.shape[1] - height) // step)
        left = step * random.randint(0, (picture.shape[2] - width) // step)
        crops.append(picture[:, top : top + height, left : left + width])
    return max(crops, key=lambda crop: float(crop.diff(dim=2).abs().sum()))


def _free_pictures(random: Random, count: int, height: int, width: int) -> Tensor:
    """A backdrop, turned shapes of any size and colour over it, and thin lines; some out of focus."""
    fine = height * _SAMPLES, width * _SAMPLES
    made = []
    for _ in range(count):
        picture = _filling(random, fine, flat=0.4)
        for _ in range(random.randint(0, 7)):
            cover = (0.5 - _outline(random, *fine)).clamp(0, 1)
            picture = torch.lerp(picture, _filling(random, fine, flat=0.85), cover)
        picture = F.avg_pool2d(picture, _SAMPLES)
        if random.random() < 0.1:
            picture = F.avg_pool2d(F.pad(picture, (2, 2, 2, 2), mode="replicate"), 5, stride=1)
        made.append(picture)
    return torch.cat(made)


def _filling(random: Random, size: tuple[int, int], flat: float) -> Tensor:
    """One colour with probability `flat`, otherwise a gradient or soft clouds as in photographs."""
    if random.random() < flat:
        return (torch.rand(1, 3, 1, 1) * 2 - 1).expand(-1, -1, *size)
    knots = random.choice(((2, 2), (2, 2), (3, 3), (5, 5), (9, 9)))
    clouds = torch.rand(1, 3, *knots) * 2 - 1
    return F.interpolate(clouds, size=size, mode="bicubic", align_corners=True).clamp(-1, 1)


def _outline(random: Random, height: int, width: int) -> Tensor:
    """The distance from a line or a shape anywhere: half of them are upright, as in most drawings."""
    y, x = torch.arange(height)[:, None] + 0.5, torch.arange(width)[None, :] + 0.5
    angle = random.choice((0.0, random.uniform(0, 2 * math.pi)))
    x, y = x - random.random() * width, y - random.random() * height
    across, down = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    if random.random() < 0.25:
        half_width, half_length = _SAMPLES * random.uniform(0.5, 3), _SAMPLES * random.uniform(5, 99)
        return torch.maximum(down.abs() - half_width, across.abs() - half_length)
    radius = torch.tensor(_SAMPLES * math.exp(random.uniform(math.log(3), math.log(48))))
    return random.choice(tuple(SHAPES.values()))(across, down, radius)
