from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.build.analytic_vae import analytic_kl_vae, analytic_vae

BUILDERS = (analytic_vae, analytic_kl_vae)


def pictures(height: int = 64, width: int = 96) -> Tensor:
    return torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(5)) * 2 - 1


@torch.inference_mode()
def encoded(vae: Any, picture: Tensor) -> Tensor:
    return vae.encode(picture).latent_dist.mode()


@pytest.mark.parametrize("build", BUILDERS)
def test_latents_are_the_averages_of_4_x_4_pixels(build: Any) -> None:
    exact = F.pixel_unshuffle(F.avg_pool2d(pictures(), 4), 2)
    assert (encoded(build(), pictures()) - exact).abs().max() < 5e-4


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_latents_of_one_colour_are_that_colour(build: Any, value: float) -> None:
    assert (encoded(build(), torch.full((1, 3, 32, 32), value)) - value).abs().max() < 1e-3


@pytest.mark.parametrize("widths", [(8, 8, 32, 32), (8, 16, 32, 48), (16, 32, 64, 48)])
def test_width_makes_no_difference_to_the_encoder(widths: tuple[int, ...]) -> None:
    exact = F.pixel_unshuffle(F.avg_pool2d(pictures(), 4), 2)
    assert (encoded(analytic_kl_vae(widths), pictures()) - exact).abs().max() < 5e-4


@pytest.mark.parametrize("build", BUILDERS)
def test_latents_are_certain(build: Any) -> None:
    with torch.inference_mode():
        assert build().encode(pictures()).latent_dist.std.max() < 1e-5


def test_both_have_the_same_decoder() -> None:
    first, second = (build().get_submodule("decoder").state_dict() for build in BUILDERS)
    assert {name: value.shape for name, value in first.items()} == {name: v.shape for name, v in second.items()}


@pytest.mark.parametrize("build", BUILDERS)
def test_an_untrained_decoder_enlarges_smoothly(build: Any) -> None:
    vae = build()
    soft = F.interpolate(torch.rand(1, 3, 3, 3) - 0.5, size=(64, 64), mode="bicubic", align_corners=True)
    with torch.inference_mode():
        decoded = vae.decode(encoded(vae, soft)).sample
    inside = (slice(None), slice(None), slice(8, -8), slice(8, -8))  # borders are padded with zeros
    assert (decoded - soft)[inside].abs().max() < 0.1
