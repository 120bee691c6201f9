"""What is to be heard: a tone that is the higher the higher the thing is, and the louder the larger."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deployments.contract.clip import FPS
from training.build.analytic_sound import COLUMNS_PER_LATENT, HOP, LATENT_STD, PITCHES, SAMPLE_RATE
from training.worlds.clips.scene import LARGEST, SIZES, Grid, Scene, reach

LATENTS_PER_S = SAMPLE_RATE / HOP / COLUMNS_PER_LATENT
MIDDLE, SPAN = 7, 7
"""The pitch of a thing halfway up, and how many it rises to the top: numbers in `PITCHES`."""
_LOUDEST = SIZES["large"] * LARGEST


def tone_latents(scenes: Sequence[Scene], grid: Grid, count: int) -> Tensor:
    """(B, latents, pitches) of clips of `count` frames."""
    length = count / FPS
    total = round(length * LATENTS_PER_S)
    told = torch.tensor([[_tone(scene, grid, i / LATENTS_PER_S, length) for i in range(total)] for scene in scenes])
    pitch, loudness = told.unbind(dim=2)
    apart = (torch.arange(len(PITCHES)) - pitch[..., None]).abs()
    return (1 - apart).clamp_min(0) * loudness[..., None] / LATENT_STD


def _tone(scene: Scene, grid: Grid, seconds: float, length: float) -> tuple[float, float]:
    """Pitch, between two of which both sound, and loudness in [0, 1]."""
    _, y, radius = scene.circle(grid, seconds, length)
    return MIDDLE - SPAN * y / reach(grid[0]), 0.25 + 0.75 * radius / _LOUDEST
