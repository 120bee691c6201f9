"""A picture from latents for a few microseconds of work: what the decoder does, as far as a linear map can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.pictures.pixels import Pixels, resize

LONG_SIDE = 256
"""Pixels of the longer side of a preview."""

_GRID = 16
_SAMPLES = 4


class LinearPreview:
    """Maps every token to 2 x 2 colours."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` is (C + 1, 12): channels and a constant, to 2 x 2 pixels of red, green and blue in [0, 1]."""
        self._weight = weight

    @classmethod
    def fitted(cls, decode: Callable[[Tensor], Tensor], channels: int, device: torch.device) -> Self:
        """Least squares over decoded random latents; `decode` turns (1, C, h, w) into (1, 3, 16h, 16w) in [0, 1]."""
        generator = torch.Generator("cpu").manual_seed(0)
        rows, colours = [], []
        for sample in range(_SAMPLES):
            # From fine noise to coarse clouds: pictures have both.
            side = max(2, _GRID >> sample)
            noise = torch.randn((1, channels, side, side), generator=generator)
            latents = F.interpolate(noise, size=(_GRID, _GRID), mode="bilinear").to(device)
            decoded = F.adaptive_avg_pool2d(decode(latents), 2 * _GRID)
            rows.append(_rows(latents))
            colours.append(F.pixel_unshuffle(decoded, 2).flatten(2).transpose(1, 2)[0])
        # In double precision on the CPU: solvers of other devices differ in which systems they can take.
        x, y = torch.cat(rows).double().cpu(), torch.cat(colours).double().cpu()
        ridge = 1e-3 * torch.eye(x.shape[1], dtype=torch.float64)
        weight = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
        return cls(weight.float().to(device))

    def picture(self, latents: Tensor, width: int, height: int) -> Pixels:
        """Latents (1, C, h, w) to a picture in the ratio of `width` to `height`, its longer side LONG_SIDE pixels."""
        grid = latents.shape[-2:]
        colours = (_rows(latents.float()) @ self._weight).T.reshape(1, 12, *grid)
        pixels = (F.pixel_shuffle(colours, 2)[0].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
        scale = LONG_SIDE / max(width, height)
        return resize(pixels.cpu().contiguous().numpy(), max(1, round(width * scale)), max(1, round(height * scale)))


def _rows(latents: Tensor) -> Tensor:
    """(1, C, h, w) to (h x w, C + 1), the last column ones."""
    tokens = latents[0].flatten(1).T
    return torch.cat([tokens, torch.ones_like(tokens[:, :1])], dim=1)
