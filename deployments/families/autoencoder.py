"""How an autoencoder of pictures runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from deployments.families.placement import Placement


def place(vae: Any, placement: Placement) -> None:
    """Lays out the weights of `vae`, an `AutoencoderKL` or `AutoencoderKLFlux2`, and lets it take pictures in tiles, as
    `placement` says.

    Tiles overlap by a quarter and are blended there, by diffusers' rule.
    """
    if placement.channels_last:
        vae.to(memory_format=torch.channels_last)
    if placement.tile_above is not None:
        vae.enable_tiling()
        vae.blend_v, vae.blend_h = partial(_blend, dim=2), partial(_blend, dim=3)
        vae.tile_sample_min_size = placement.tile_above
        vae.tile_latent_min_size = placement.tile_above // 2 ** (len(vae.config.block_out_channels) - 1)


def _blend(first: Tensor, second: Tensor, blend_extent: int, *, dim: int) -> Tensor:
    """`second`, whose beginning along `dim` fades from the end of `first`. Diffusers' own takes a kernel launch per
    line of pixels, tens of thousands for an image of 4096."""
    extent = min(first.shape[dim], second.shape[dim], blend_extent)
    share = torch.arange(extent, dtype=torch.float64).div(extent).view([-1 if d == dim else 1 for d in range(4)])
    fades, rises = (part.to(second.device, torch.float32) for part in (1 - share, share))
    ends, begins = first.narrow(dim, first.shape[dim] - extent, extent), second.narrow(dim, 0, extent)
    begins.copy_(ends * fades + begins * rises)
    return second
