from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
import torch

from benchmarks.deblur import BLURS, KINDS, Blur, leaves, outcomes, psnr, uploaded
from deployments.contract.model import ModelSpec
from deployments.restorers.deconvolution import Deconvolution, Kernel, edge_width, found_kernel

SPEC = ModelSpec(checkpoint="", objects_url="memory:///", backend="deconvolution", threads=1)
RESTORER = Deconvolution(SPEC)


@pytest.fixture
def _one_thread_again() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_one_thread_again")
@pytest.mark.parametrize(("threads", "taken"), [(1, 1), (3, 3), (None, os.cpu_count())])
def test_it_takes_the_threads_that_the_settings_name(threads: int | None, taken: int) -> None:
    torch.set_num_threads((os.cpu_count() or 1) + 4)
    Deconvolution(replace(SPEC, threads=threads))
    assert torch.get_num_threads() == taken


@pytest.mark.slow
@pytest.mark.parametrize("blur", BLURS, ids=str)
def test_blurred_pictures_come_closer_to_their_originals(blur: Blur) -> None:
    found = list(outcomes(RESTORER, 2, (blur,)))
    assert mean(one.psnr[1] - one.psnr[0] for one in found) > 1.0
    assert mean(one.ssim[1] - one.ssim[0] for one in found) > 0.05
    assert min(one.psnr[1] - one.psnr[0] for one in found) > -0.5
    assert min(one.ssim[1] - one.ssim[0] for one in found) > -0.04


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_sharp_pictures_stay_as_they_are(kind: str, seed: int) -> None:
    sharp = uploaded(KINDS[kind](seed, 256).astype(np.float32))
    assert psnr(RESTORER.restore(sharp, None), sharp) > 45


@pytest.mark.parametrize("blur", [Blur("gaussian", 1), Blur("gaussian", 3), Blur("disc", 2), Blur("disc", 3)], ids=str)
def test_the_kernel_is_found(blur: Blur) -> None:
    blurred = uploaded(blur.of(leaves(1)))
    assert found_kernel(blurred, edge_width(blurred), 1500.0) == Kernel(
        "gaussian" if blur.kind == "gaussian" else "disc", blur.size
    )


def test_noise_is_not_blown_up() -> None:
    """A third of it is gone at least in what is flat, and not more of it there."""
    flat = np.full((256, 256, 3), 120, np.float32)
    flat[:, 128:] = 60
    noise = np.random.default_rng(0).normal(0, 6, flat.shape)
    noisy = np.clip(Blur("gaussian", 2).of(flat.astype(np.uint8)) + noise, 0, 255)
    restored = RESTORER.restore(noisy.round().astype(np.uint8), None)
    assert restored[16:-16, 20:100].std() < 1.2 * noisy[16:-16, 20:100].std()


def test_edges_get_no_halo() -> None:
    step = np.full((128, 256, 3), 70, np.uint8)
    step[:, 128:] = 180
    restored = RESTORER.restore(uploaded(Blur("gaussian", 2).of(step)), None).astype(int)
    assert restored.min() >= 70 - 12
    assert restored.max() <= 180 + 12
    assert np.abs(restored[:, :120] - 70).max() <= 12


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (40, 33), (257, 100)])
def test_any_size(size: tuple[int, int]) -> None:
    random = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    blurred = Blur("gaussian", 2).of(random).round().astype(np.uint8)
    assert RESTORER.restore(blurred, None).shape == (*size, 3)


@pytest.mark.slow
def test_tiles_leave_no_seams() -> None:
    """A picture of several tiles is what a smaller part of it is by itself."""
    blurred = uploaded(Blur("gaussian", 1.5).of(leaves(2, 1280)))
    whole = RESTORER.restore(blurred, None)
    around = RESTORER.restore(blurred[700:1280, 700:1280], None)
    assert psnr(whole[740:1180, 740:1180], around[40:480, 40:480]) > 40
