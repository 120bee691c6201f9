"""Draws clips of the moving world: as pixels, or faster as the latents these have."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.contract.clip import FPS
from training.build.analytic_video_vae import CELL, LATENT_CHANNELS, LATENT_STD, PACE
from training.worlds import palette
from training.worlds.clips.scene import Grid, Scene
from training.worlds.shapes import SHAPES

_BOX = 8
"""Pixels along the side of what latents hold the mean of."""
_DOTS = 2
"""Points along the side of such a box that are looked at, when latents are drawn."""
_LOOKS = (-6.5, -4.5, -2.5, -0.5)
"""Frames of a latent cell that are looked at, from its last one: the middles of pairs."""


def frames(scene: Scene, grid: Grid, count: int) -> Tensor:
    """(count, 3, H, W) in [-1, 1]."""
    length = count / FPS
    circles = torch.tensor([scene.circle(grid, frame / FPS, length) for frame in range(count)])
    return _coloured([scene], _covers([scene], circles[None], grid, CELL))[0].transpose(0, 1)


def latent_frames(count: int) -> int:
    return (count - 1) // PACE + 1


def latents(scenes: Sequence[Scene], grid: Grid, count: int) -> tuple[Tensor, Tensor]:
    """Of clips of `count` frames, (B, C, latent frames, rows, columns), and how much of each cell the thing covers."""
    last = torch.arange(1, latent_frames(count)) * PACE
    looks = torch.cat([torch.zeros(len(_LOOKS)), (last[:, None] + torch.tensor(_LOOKS)).flatten()]) / FPS
    return _folded(scenes, looks.tolist(), grid, count)


def picture_latents(scenes: Sequence[Scene], grid: Grid, count: int, frame: int) -> tuple[Tensor, Tensor]:
    """Of a single frame of such clips."""
    return _folded(scenes, [frame / FPS] * len(_LOOKS), grid, count)


def _folded(scenes: Sequence[Scene], seconds: list[float], grid: Grid, count: int) -> tuple[Tensor, Tensor]:
    length = count / FPS
    circles = torch.tensor([[scene.circle(grid, time, length) for time in seconds] for scene in scenes])
    covers = F.avg_pool2d(_covers(scenes, circles, grid, CELL // _BOX * _DOTS), _DOTS)
    covers = covers.unflatten(1, (-1, 2)).mean(dim=2)
    boxes = _coloured(scenes, covers)  # (B, 3, halves, H, W)
    rows, columns = grid
    cells = boxes.reshape(len(scenes), 3, -1, 2, rows, 2, 2, columns, 2, 2)  # ..., square, place in it
    folded = cells.permute(0, 1, 6, 9, 3, 5, 8, 2, 4, 7).reshape(len(scenes), LATENT_CHANNELS, -1, rows, columns)
    covered = F.avg_pool2d(covers, CELL // _BOX).unflatten(1, (-1, 2)).mean(dim=2)
    return folded / LATENT_STD, covered


def _covers(scenes: Sequence[Scene], circles: Tensor, grid: Grid, dots: int) -> Tensor:
    """(B, N, rows x dots, columns x dots) in [0, 1], with things at the (x, y, half side) of `circles` (B, N, 3)."""
    rows, columns = (side * dots for side in grid)
    y = ((torch.arange(rows) + 0.5) / dots - grid[0] / 2)[:, None]
    x = ((torch.arange(columns) + 0.5) / dots - grid[1] / 2)[None]
    covers = torch.empty(len(scenes), circles.shape[1], rows, columns)
    for shape in dict.fromkeys(scene.shape for scene in scenes):
        members = [index for index, scene in enumerate(scenes) if scene.shape == shape]
        left, top, radius = circles[members].unbind(dim=2)
        distance = SHAPES[shape](x - left[..., None, None], y - top[..., None, None], radius[..., None, None])
        covers[members] = (0.5 - distance * dots).clamp(0, 1)
    return covers


def _coloured(scenes: Sequence[Scene], covers: Tensor) -> Tensor:
    """(B, N, H, W) to (B, 3, N, H, W)."""
    shades = [0.0] * len(scenes)
    things = palette.rgb([scene.colour for scene in scenes], shades)[..., None, None, None]
    behind = palette.rgb([scene.background for scene in scenes], shades)[..., None, None, None]
    return torch.lerp(behind, things, covers[:, None])
