"""VAEs: memory layout, tiling, and the check for finite outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from deployments.backend import NotFinite
from deployments.families.pipeline import LoadOptions


def place_vae(vae: Any, load_options: LoadOptions) -> None:
    """Sets memory layout and tiling of an `AutoencoderKL` or `AutoencoderKLFlux2` by `load_options`.

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
    """Blends the start of `second` along `dim` with the end of `first`. Diffusers' own function takes a kernel launch
    per line of pixels, tens of thousands for an image of 4096."""
    extent = min(first.shape[dim], second.shape[dim], blend_extent)
    ramp = torch.arange(extent, dtype=torch.float64).div(extent).view([-1 if d == dim else 1 for d in range(4)])
    fades, rises = (part.to(second.device, torch.float32) for part in (1 - ramp, ramp))
    ends, begins = first.narrow(dim, first.shape[dim] - extent, extent), second.narrow(dim, 0, extent)
    begins.copy_(ends * fades + begins * rises)
    return second


def finite(result: Tensor) -> Tensor:
    """Returns `result`. Raises NotFinite for NaN or infinity, which would be black or silent. Waits for the device."""
    if not torch.isfinite(result).all():
        raise NotFinite("a network's result is not finite")
    return result
