from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.build.checkpoints import AUTOENCODERS, autoencoder


def pictures(height: int = 64, width: int = 96) -> Tensor:
    return torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(5)) * 2 - 1


@torch.inference_mode()
def encoded(vae: Any, picture: Tensor) -> Tensor:
    return vae.encode(picture).latent_dist.mode()


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_latents_are_the_averages_of_4_x_4_pixels(name: str) -> None:
    exact = F.pixel_unshuffle(F.avg_pool2d(pictures(), 4), 2)
    assert (encoded(autoencoder(name), pictures()) - exact).abs().max() < 5e-4


@pytest.mark.parametrize("name", AUTOENCODERS)
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_latents_of_one_colour_are_that_colour(name: str, value: float) -> None:
    assert (encoded(autoencoder(name), torch.full((1, 3, 32, 32), value)) - value).abs().max() < 1e-3


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_latents_are_certain(name: str) -> None:
    with torch.inference_mode():
        assert autoencoder(name).encode(pictures()).latent_dist.std.max() < 1e-5


def test_both_have_the_same_decoder() -> None:
    first, second = (autoencoder(name).get_submodule("decoder").state_dict() for name in AUTOENCODERS)
    assert {name: value.shape for name, value in first.items()} == {name: v.shape for name, v in second.items()}


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_an_untrained_decoder_enlarges_smoothly(name: str) -> None:
    vae = autoencoder(name)
    soft = F.interpolate(torch.rand(1, 3, 3, 3) - 0.5, size=(64, 64), mode="bicubic", align_corners=True)
    with torch.inference_mode():
        decoded = vae.decode(encoded(vae, soft)).sample
    inside = (slice(None), slice(None), slice(8, -8), slice(8, -8))  # borders are padded with zeros
    assert (decoded - soft)[inside].abs().max() < 0.1
