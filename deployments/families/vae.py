"""VAEs: memory layout and tiling, finite outputs, and previews by a linear projection of latents."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.backend import NotFinite
from deployments.families.pipeline import LoadOptions
from deployments.images import Pixels, resize


def place_vae(vae: Any, load_options: LoadOptions) -> None:
    """Lays out the weights of `vae`, an `AutoencoderKL` or `AutoencoderKLFlux2`, and lets it take images in tiles, as
    `load_options` says.

    Tiles overlap by a quarter and are blended there, by diffusers' rule.
    """
    if load_options.config.channels_last:
        vae.to(memory_format=torch.channels_last)
    if load_options.config.tile_above is not None:
        vae.enable_tiling()
        vae.blend_v, vae.blend_h = partial(_blend, dim=2), partial(_blend, dim=3)
        vae.tile_sample_min_size = load_options.config.tile_above
        vae.tile_latent_min_size = load_options.config.tile_above // 2 ** (len(vae.config.block_out_channels) - 1)


def _blend(first: Tensor, second: Tensor, blend_extent: int, *, dim: int) -> Tensor:
    """`second`, whose beginning along `dim` fades from the end of `first`. Diffusers' own takes a kernel launch per
    line of pixels, tens of thousands for an image of 4096."""
    extent = min(first.shape[dim], second.shape[dim], blend_extent)
    ramp = torch.arange(extent, dtype=torch.float64).div(extent).view([-1 if d == dim else 1 for d in range(4)])
    fades, rises = (part.to(second.device, torch.float32) for part in (1 - ramp, ramp))
    ends, begins = first.narrow(dim, first.shape[dim] - extent, extent), second.narrow(dim, 0, extent)
    begins.copy_(ends * fades + begins * rises)
    return second


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
    def fit(cls, decode: Callable[[Tensor], Tensor], channels: int, device: torch.device) -> Self:
        """Least squares over decoded random latents; `decode` turns (1, C, h, w) into (1, 3, 16h, 16w) in [0, 1]."""
        generator = torch.Generator("cpu").manual_seed(0)
        rows, colours = [], []
        for sample in range(_SAMPLES):
            # From fine noise to coarse clouds: images have both.
            side = max(2, _GRID >> sample)
            noise = torch.randn((1, channels, side, side), generator=generator)
            latents = F.interpolate(noise, size=(_GRID, _GRID), mode="bilinear").to(device)
            image = F.adaptive_avg_pool2d(decode(latents), 2 * _GRID)
            rows.append(_rows(latents))
            colours.append(F.pixel_unshuffle(image, 2).flatten(2).transpose(1, 2)[0])
        # In double precision on the CPU: solvers of other devices differ in which systems they can take.
        x, y = torch.cat(rows).double().cpu(), torch.cat(colours).double().cpu()
        ridge = 1e-3 * torch.eye(x.shape[1], dtype=torch.float64)
        weight = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
        return cls(weight.float().to(device))

    def image(self, latents: Tensor, width: int, height: int) -> Pixels:
        """Latents (1, C, h, w) to an image in the ratio of `width` to `height`, its longer side LONG_SIDE pixels."""
        grid = latents.shape[-2:]
        colours = (_rows(latents.float()) @ self._weight).T.reshape(1, 12, *grid)
        pixels = (F.pixel_shuffle(colours, 2)[0].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
        scale = LONG_SIDE / max(width, height)
        return resize(pixels.cpu().contiguous().numpy(), max(1, round(width * scale)), max(1, round(height * scale)))


def _rows(latents: Tensor) -> Tensor:
    """(1, C, h, w) to (h x w, C + 1), the last column ones."""
    tokens = latents[0].flatten(1).T
    return torch.cat([tokens, torch.ones_like(tokens[:, :1])], dim=1)


def finite(result: Tensor) -> Tensor:
    """`result` itself. Raises NotFinite where one of its numbers is none: as an image it would be black, as sound
    silence. Waits for the device."""
    if not torch.isfinite(result).all():
        raise NotFinite("a network's result is not finite")
    return result
