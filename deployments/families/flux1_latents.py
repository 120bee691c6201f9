"""Pictures, latents and tokens of Flux1.

The autoencoder takes 8 x 8 pixels to a latent cell of C channels; 2 x 2 cells are a token of 4C numbers, ordered
(channel, row, column), which is what `pixel_unshuffle` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from deployments.families.noise import draw_noise

CELL = 8
"""Pixels per side of a latent cell."""


class Latents:
    """The autoencoder, with latents scaled the way the transformer sees them."""

    def __init__(self, vae: Any, device: torch.device) -> None:
        """`vae` is an `AutoencoderKL`, on `device`."""
        self._vae = vae
        self._device = device
        self.channels = int(vae.config.latent_channels)

    def noise(self, grid: tuple[int, int], generator: torch.Generator) -> Tensor:
        """(1, C, 2 rows, 2 columns) float32 for a grid of tokens."""
        rows, columns = grid
        return draw_noise((1, self.channels, 2 * rows, 2 * columns), generator, self._device)

    def mean(self, picture: Tensor) -> Tensor:
        """A picture (1, 3, H, W) in [-1, 1] to its latents (1, C, H/8, W/8), in the autoencoder's precision."""
        return self._scaled(self._posterior(picture).mean)

    def sample(self, picture: Tensor, generator: torch.Generator) -> Tensor:
        """Like `mean`, with noise of the width that the encoder gives each number."""
        posterior = self._posterior(picture)
        rows, columns = posterior.mean.shape[-2:]
        noise = self.noise((rows // 2, columns // 2), generator).to(posterior.mean.dtype)
        return self._scaled(posterior.mean + posterior.std * noise)

    def decode(self, latents: Tensor) -> Tensor:
        """Latents (1, C, h, w) to a picture (1, 3, 8h, 8w) in [0, 1], float32."""
        config = self._vae.config
        # Convolutions round differently where channels lie together in memory, as they do after `pixel_shuffle`.
        latents = latents.contiguous().to(self._vae.dtype) / config.scaling_factor + config.shift_factor
        decoded = self._vae.decode(latents, return_dict=False)[0]
        return (decoded * 0.5 + 0.5).clamp(0, 1).float()

    def _posterior(self, picture: Tensor) -> Any:
        return self._vae.encode(picture.to(self._device, self._vae.dtype)).latent_dist

    def _scaled(self, latents: Tensor) -> Tensor:
        return (latents - self._vae.config.shift_factor) * self._vae.config.scaling_factor


def as_tensor(picture: Image.Image) -> Tensor:
    """An RGB picture to (1, 3, H, W) in [-1, 1], a grey one to (1, 1, H, W) in [0, 1]; float32."""
    pixels = torch.from_numpy(np.array(picture).astype(np.float32) / 255.0)
    if pixels.ndim == 2:
        return pixels[None, None]
    # The batch comes first: only then do the strides say that colours are innermost, which decides how it is summed.
    return 2.0 * pixels[None].permute(0, 3, 1, 2) - 1.0


def to_tokens(latents: Tensor) -> Tensor:
    """(1, C, h, w) to tokens (1, h/2 x w/2, 4C), row by row."""
    return F.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)


def from_grid(tokens: Tensor) -> Tensor:
    """(1, 4C, rows, columns) to latents (1, C, 2 rows, 2 columns)."""
    return F.pixel_shuffle(tokens, 2)


def grid_ids(rows: int, columns: int, picture: int = 0) -> Tensor:
    """Position ids (picture, row, column) of the tokens of one picture, (rows x columns, 3) float32, row by row."""
    return torch.cartesian_prod(torch.tensor([picture]), torch.arange(rows), torch.arange(columns)).float()
