"""Draws clips: as pixels, or faster as the latents these have; and the tones that go with them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.contract.clip import FPS
from training.build import sound
from training.build.video_autoencoder import CELL, LATENT_CHANNELS, LATENT_STD, PACE
from training.worlds import palette
from training.worlds.clips.scene import LARGEST, SIZES, Grid, Scene, reach
from training.worlds.shapes import silhouettes

_BOX = 8
"""Pixels along the side of what latents hold the mean of."""
_DOTS = 2
"""Points along the side of such a box that are looked at, when latents are drawn."""
_LOOKS = (-6.5, -4.5, -2.5, -0.5)
"""Frames of a latent cell that are looked at, from its last one: the middles of pairs."""

TONES_PER_S = sound.SAMPLE_RATE / sound.HOP / sound.COLUMNS_PER_LATENT
"""Latents of the sound."""
MIDDLE, SPAN = 7, 7
"""The pitch of a thing halfway up, and how many it rises to the top: numbers in `PITCHES`."""
_LOUDEST = SIZES["large"] * LARGEST


def frames(scene: Scene, grid: Grid, count: int) -> Tensor:
    """(count, 3, H, W) in [-1, 1]."""
    seconds = [frame / FPS for frame in range(count)]
    return _coloured([scene], _covers([scene], seconds, grid, count, CELL))[0].transpose(0, 1)


def latent_frames(count: int) -> int:
    return (count - 1) // PACE + 1


def latents(scenes: Sequence[Scene], grid: Grid, count: int) -> tuple[Tensor, Tensor]:
    """Of clips of `count` frames, (B, C, latent frames, rows, columns), and how much of each cell the thing covers."""
    last = torch.arange(1, latent_frames(count)) * PACE
    looks = torch.cat([torch.zeros(len(_LOOKS)), (last[:, None] + torch.tensor(_LOOKS)).flatten()]) / FPS
    return _folded(scenes, looks.tolist(), grid, count)


def picture_latents(scenes: Sequence[Scene], grid: Grid, count: int, frame: int) -> Tensor:
    """(B, C, 1, rows, columns): of a single frame of such clips."""
    return _folded(scenes, [frame / FPS] * len(_LOOKS), grid, count)[0]


def tone_latents(scenes: Sequence[Scene], grid: Grid, count: int) -> Tensor:
    """(B, latents, pitches): a tone that is the higher the higher the thing is, and the louder the larger."""
    length = count / FPS
    seconds = [index / TONES_PER_S for index in range(round(length * TONES_PER_S))]
    _, y, radius = _circles(scenes, seconds, grid, length).unbind(dim=2)
    apart = (torch.arange(len(sound.PITCHES)) - (MIDDLE - SPAN * y / reach(grid[0]))[..., None]).abs()
    loudness = 0.25 + 0.75 * radius[..., None] / _LOUDEST
    return (1 - apart).clamp_min(0) * loudness / sound.LATENT_STD


def _folded(scenes: Sequence[Scene], seconds: list[float], grid: Grid, count: int) -> tuple[Tensor, Tensor]:
    covers = F.avg_pool2d(_covers(scenes, seconds, grid, count, CELL // _BOX * _DOTS), _DOTS)
    covers = covers.unflatten(1, (-1, 2)).mean(dim=2)
    boxes = _coloured(scenes, covers)  # (B, 3, halves, H, W)
    rows, columns = grid
    cells = boxes.reshape(len(scenes), 3, -1, 2, rows, 2, 2, columns, 2, 2)  # ..., square, place in it
    folded = cells.permute(0, 1, 6, 9, 3, 5, 8, 2, 4, 7).reshape(len(scenes), LATENT_CHANNELS, -1, rows, columns)
    covered = F.avg_pool2d(covers, CELL // _BOX).unflatten(1, (-1, 2)).mean(dim=2)
    return folded / LATENT_STD, covered


def _covers(scenes: Sequence[Scene], seconds: list[float], grid: Grid, count: int, dots: int) -> Tensor:
    """(B, times, rows x dots, columns x dots) in [0, 1]: where the things of clips of `count` frames are."""
    height, width = (side * dots for side in grid)
    circles = _circles(scenes, seconds, grid, count / FPS) * dots + torch.tensor([width / 2, height / 2, 0])
    names = [scene.shape for scene in scenes for _ in seconds]
    return silhouettes(names, circles.flatten(0, 1), (height, width)).unflatten(0, circles.shape[:2])


def _circles(scenes: Sequence[Scene], seconds: list[float], grid: Grid, length: float) -> Tensor:
    """(B, times, 3): x, y and half side in cells."""
    return torch.tensor([[scene.circle(grid, time, length) for time in seconds] for scene in scenes])


def _coloured(scenes: Sequence[Scene], covers: Tensor) -> Tensor:
    """(B, N, H, W) to (B, 3, N, H, W)."""
    things, behind = (
        palette.rgb([getattr(scene, part) for scene in scenes])[..., None, None, None]
        for part in ("colour", "background")
    )
    return torch.lerp(behind, things, covers[:, None])
