"""How good a decoder is: figures on scenes of the little world that no training shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from training.lessons.decoder import TOKEN, latents
from training.worlds.pictures.drawing import draw
from training.worlds.pictures.scene import Grid, random_scene

RIM: Final = 3
"""Pixels at the border that border padding reaches most."""
NOISE: Final = 0.1
"""Of the latents, for one of the figures: those of a diffusion model are never perfect."""
_REACH: Final = 5
"""Pixels at both sides of an edge that are looked at, for its width."""
_FLAT: Final = 3
"""Steps from one to the next that must be flat there in the truth."""
_CONTRAST: Final = 0.5
"""Of the colours at both sides, at least."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Decibels, but for edges: the median width in pixels in which they go from 10 to 90 %."""

    psnr: float
    rim: float
    middle: float
    noisy: float
    edge: float
    true_edge: float


def held_out(count: int, seed: int, grid: Grid = (8, 8)) -> Tensor:
    """(B, 3, H, W): scenes that are kept for grading, one to three things each."""
    random = Random(seed)
    scenes = [random_scene(random, grid, 1 + index % 3, held_out=True) for index in range(count)]
    return draw(scenes, grid, TOKEN)[0]


@torch.inference_mode()
def quality(decode: Callable[[Tensor], Tensor], pictures: Tensor, seed: int = 0) -> Quality:
    exact = latents(pictures)
    decoded = decode(exact).clamp(-1, 1)
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(seed))
    inside = torch.zeros(pictures.shape[2:], dtype=torch.bool)
    inside[RIM:-RIM, RIM:-RIM] = True
    return Quality(
        psnr=_psnr(decoded, pictures),
        rim=_psnr(decoded[..., ~inside], pictures[..., ~inside]),
        middle=_psnr(decoded[..., inside], pictures[..., inside]),
        noisy=_psnr(decode(exact + NOISE * noise).clamp(-1, 1), pictures),
        edge=edge_width(decoded, pictures),
        true_edge=edge_width(pictures, pictures),
    )


def _psnr(decoded: Tensor, truth: Tensor) -> float:
    return float(-10 * torch.log10(F.mse_loss(decoded, truth) / 4))


def edge_width(pictures: Tensor, truth: Tensor) -> float:
    """Median 10 to 90 % width, along rows, where `truth` has an edge between two flat parts."""
    # (picture, row, start, pixel, colour)
    seen, true = (tensor.unfold(3, 2 * _REACH, 1).movedim(1, -1) for tensor in (pictures, truth))
    steps = true.diff(dim=-2).abs().amax(-1)
    across = true[..., -1, :] - true[..., 0, :]
    flat = torch.cat([steps[..., :_FLAT], steps[..., -_FLAT:]], -1).amax(-1) < 0.02
    found = flat & (across.abs().amax(-1) > _CONTRAST)
    start, across = true[..., :1, :][found], across[found][:, None]
    profiles = ((seen[found] - start) * across).sum(-1) / across.square().sum(-1)  # 0 before the edge, 1 behind it
    return float((_crossing(profiles, 0.9) - _crossing(profiles, 0.1)).median())


def _crossing(profiles: Tensor, level: float) -> Tensor:
    """Where each of (B, N) first reaches a level, in pixels."""
    reached = profiles >= level
    reached[:, -1] = True  # those that never do are as wide as what is looked at
    after = reached.int().argmax(1).clamp(min=1)[:, None]
    low, high = profiles.gather(1, after - 1), profiles.gather(1, after)
    return (after - 1 + ((level - low) / (high - low).clamp(min=1e-6)).clamp(0, 1))[:, 0]
