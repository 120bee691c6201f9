"""Memory layouts and tiles of autoencoders do not visibly change images."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from flux_drawing import draw, encode, load_family, random_image
from support.jobs import make_job

from deployments.families.vae import _blend

NAMES = ["flux3", "kontext", "flux2klein"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_channels_last_changes_only_rounding(name: str) -> None:
    reference = random_image(1, 96, 64)
    families = [load_family(name, channels_last=last) for last in (False, True)]
    states = [encode(family, make_job(steps=1), reference) for family in families]
    torch.testing.assert_close(states[1].per["references"], states[0].per["references"], rtol=1e-4, atol=1e-4)
    plain, last = (draw(family, states[0]).astype(int) for family in families)
    assert np.abs(plain - last).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_tiles_give_nearly_the_same_image(name: str) -> None:
    job = make_job(width=448, height=320, steps=1)
    whole, tiled = load_family(name), load_family(name, tile_above=256)
    state = encode(whole, job)
    plain = draw(whole, state).astype(int)
    assert np.abs(plain - tiled.finish(state)).max() <= 8
    small = encode(whole, make_job(steps=1))
    assert np.array_equal(draw(whole, small), tiled.finish(small)), "a small image has one tile"


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("extent", [1, 7, 40])
def test_blend_equals_diffusers(dim: int, extent: int) -> None:
    draw = torch.Generator().manual_seed(extent)
    first, second = (torch.randn((1, 3, 24, 20), generator=draw) for _ in range(2))
    stock = {2: AutoencoderKL.blend_v, 3: AutoencoderKL.blend_h}[dim](cast(Any, None), first, second.clone(), extent)
    torch.testing.assert_close(_blend(first, second, extent, dim=dim), stock, rtol=1e-6, atol=1e-6)
