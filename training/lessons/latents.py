"""Pictures as the bundled models see them: tokens of 16 x 16 pixels, without running the autoencoder.

Its encoder is exact arithmetic (`analytic_vae`): 4 x 4 pixels are averaged, and the 4 x 4 averages of a token are its
16 numbers per colour. So a picture that is drawn with 4 pixels per token and side already holds its latents.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from training.build.analytic_vae import LATENT_STD
from training.worlds.pictures.scene import Grid

RESOLUTION = 4
"""Averages per token and side."""


def to_tokens(picture: Tensor) -> Tensor:
    """(B, 3, 4 rows, 4 columns) in [-1, 1] to (B, rows x columns, 48), ordered as the pipelines pack them."""
    return spread(picture) / LATENT_STD


def spread(picture: Tensor) -> Tensor:
    """(B, C, 4 rows, 4 columns) to (B, rows x columns, 16 C): the values themselves, in the order of the latents."""
    return F.pixel_unshuffle(F.pixel_unshuffle(picture, 2), 2).flatten(2).transpose(1, 2)


def to_picture(tokens: Tensor, grid: Grid) -> Tensor:
    """The way back: (B, rows x columns, 48) to (B, 3, 4 rows, 4 columns)."""
    packed = (tokens * LATENT_STD).transpose(1, 2).unflatten(2, grid)
    return F.pixel_shuffle(F.pixel_shuffle(packed, 2), 2)
