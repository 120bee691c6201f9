"""How an autoencoder of pictures runs."""

from __future__ import annotations

from typing import Any

import torch

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
        vae.tile_sample_min_size = placement.tile_above
        vae.tile_latent_min_size = placement.tile_above // 2 ** (len(vae.config.block_out_channels) - 1)
