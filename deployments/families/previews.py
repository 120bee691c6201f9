"""Previews of images: a linear map from latents to colours. `engine/previews.py` decides when to make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.images import Pixels, resize

LONG_SIDE: Final = 256
"""Pixels of the longer side of a preview."""

_GRID: Final = 16
_SAMPLES: Final = 4


class LinearPreview:
    """Maps every token to 2 x 2 pixels."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` is (C + 1, 12): channels and a constant to 2 x 2 pixels of red, green and blue in [0, 1]."""
        self._weight = weight

    @classmethod
    def fit(cls, decode: Callable[[Tensor], Tensor], channels: int, device: torch.device) -> Self:
        """Fits by least squares on decoded random latents. `decode` takes (1, C, h, w) to (1, 3, 16h, 16w) in [0,
        1]."""
        generator = torch.Generator("cpu").manual_seed(0)
        rows, colours = [], []
        for sample in range(_SAMPLES):
            # From fine noise to coarse clouds, as images have both.
            side = max(2, _GRID >> sample)
            noise = torch.randn((1, channels, side, side), generator=generator)
            latents = F.interpolate(noise, size=(_GRID, _GRID), mode="bilinear").to(device)
            image = F.adaptive_avg_pool2d(decode(latents), 2 * _GRID)
            rows.append(_rows(latents))
            colours.append(F.pixel_unshuffle(image, 2).flatten(2).transpose(1, 2)[0])
        # In double precision on the CPU, as solvers of other devices can't take all systems.
        x, y = torch.cat(rows).double().cpu(), torch.cat(colours).double().cpu()
        ridge = 1e-3 * torch.eye(x.shape[1], dtype=torch.float64)
        weight = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
        return cls(weight.float().to(device))

    def image(self, latents: Tensor, width: int, height: int) -> Pixels:
        """Returns latents (1, C, h, w) as an image of ratio `width` to `height`, its longer side LONG_SIDE pixels."""
        grid = latents.shape[-2:]
        colours = (_rows(latents.float()) @ self._weight).T.reshape(1, 12, *grid)
        pixels = (F.pixel_shuffle(colours, 2)[0].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
        scale = LONG_SIDE / max(width, height)
        return resize(pixels.cpu().contiguous().numpy(), max(1, round(width * scale)), max(1, round(height * scale)))


def _rows(latents: Tensor) -> Tensor:
    """Converts (1, C, h, w) to (h x w, C + 1), the last column ones."""
    tokens = latents[0].flatten(1).T
    return torch.cat([tokens, torch.ones_like(tokens[:, :1])], dim=1)
