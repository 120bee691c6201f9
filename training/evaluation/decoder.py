"""How good a decoder is: figures on scenes of the little world that no training shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from training.evaluation import edges
from training.lessons.decoder import latents
from training.worlds.pictures.drawing import draw, in_pixels
from training.worlds.pictures.scene import TOKEN, Scene, random_scene

RIM: Final = 3
"""Pixels at the border that border padding reaches most."""
_NOISE: Final = 0.1
"""Of the latents, for one of the figures: those of a diffusion model are never perfect."""
_GRID: Final = (8, 8)

Decode = Callable[[Tensor], Tensor]
"""Latents (B, 12, H/8, W/8) to pictures (B, 3, H, W)."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Decibels, but for edges: the median width in pixels in which outlines go from 10 to 90 %."""

    psnr: float
    rim: float
    middle: float
    noisy: float
    edge: float
    true_edge: float


@torch.inference_mode()
def quality(decode: Decode, count: int, seed: int) -> Quality:
    """On `count` scenes that are kept for grading, one to three things each, and edges on as many plain ones."""
    random = Random(seed)
    pictures = draw([random_scene(random, _GRID, 1 + k % 3, held_out=True) for k in range(count)], _GRID, TOKEN)[0]
    plain = [random_scene(random, _GRID, 1, held_out=True, plain=1.0) for _ in range(count)]
    exact = latents(pictures)
    decoded = decode(exact).clamp(-1, 1)
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0))
    inside = torch.zeros(pictures.shape[2:], dtype=torch.bool)
    inside[RIM:-RIM, RIM:-RIM] = True
    truth = draw(plain, _GRID, TOKEN)[0]
    return Quality(
        psnr=_psnr(decoded, pictures),
        rim=_psnr(decoded[..., ~inside], pictures[..., ~inside]),
        middle=_psnr(decoded[..., inside], pictures[..., inside]),
        noisy=_psnr(decode(exact + _NOISE * noise).clamp(-1, 1), pictures),
        edge=_edge_width(decode(latents(truth)), plain),
        true_edge=_edge_width(truth, plain),
    )


def _psnr(decoded: Tensor, truth: Tensor) -> float:
    return float(-10 * torch.log10(F.mse_loss(decoded, truth) / 4))


def _edge_width(pictures: Tensor, scenes: list[Scene]) -> float:
    return median(edges.width(p, scene, _GRID) for p, scene in zip(in_pixels(pictures), scenes, strict=True))
