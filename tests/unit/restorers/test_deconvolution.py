from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from statistics import mean
from typing import Any, Final

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.shapes import random_scene

from deployments.contract.model import ModelSpec
from deployments.pictures.pixels import Pixels
from deployments.restorers.deconvolution import Deconvolution, Kernel, edge_width, found_kernel

SPEC = ModelSpec(checkpoint="", objects_url="memory:///", backend="deconvolution", threads=1)
RESTORER = Deconvolution(SPEC)


_EDGE: Final = 16
"""Pixels along the rim that do not count: what was blurred into them lay outside the picture."""


def shapes(seed: int, side: int = 256) -> Pixels:
    return random_scene(Random(seed), 1 + seed % 3).drawn(side, side)


def clouds(seed: int, side: int = 256) -> Pixels:
    """Noise of a photograph's spectrum: amplitudes fall as 1/f, colours alike."""
    random = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    frequency[0, 0] = np.inf
    grey, *tints = (np.fft.ifft2(np.fft.fft2(random.normal(size=(side, side))) / frequency).real for _ in range(4))
    layers = np.dstack([grey / grey.std() + 0.35 * tint / tint.std() for tint in tints])
    return np.clip(layers * 45 + 125, 0, 255).round().astype(np.uint8)


def leaves(seed: int, side: int = 256) -> Pixels:
    """Dead leaves (Lee, Mumford and Huang, 2001): discs that hide each other, as many small as photographs have."""
    random = np.random.default_rng(seed)
    fine = 4 * side
    picture = np.full((fine, fine, 3), 90, np.uint8)
    for _ in range(1500):
        radius = 12 / math.sqrt(random.uniform(0.002, 1.0))  # radii fall as 1/r^3
        x, y = random.integers(0, fine, 2)
        colour = np.clip(random.uniform(20, 235) + random.normal(0, 30, 3), 0, 255).tolist()
        cv2.circle(picture, (int(x), int(y)), round(radius), colour, -1)
    texture = cv2.resize(clouds(seed + 1, side).astype(np.float32) - 125, (fine, fine), interpolation=cv2.INTER_LINEAR)
    textured = np.clip(picture + 0.25 * texture, 0, 255).astype(np.uint8)
    return np.asarray(cv2.resize(textured, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


KINDS: Final[list[Callable[[int], Pixels]]] = [shapes, clouds, leaves]


@dataclass(frozen=True, slots=True)
class Blur:
    kind: str
    size: float
    """Sigma of a Gaussian, radius of a disc, in pixels."""

    def of(self, pixels: Pixels) -> NDArray[np.float32]:
        grey = pixels.astype(np.float32)
        if self.kind == "gaussian":
            return np.asarray(cv2.GaussianBlur(grey, (0, 0), self.size, borderType=cv2.BORDER_REFLECT), np.float32)
        reach, fine = math.ceil(self.size), 16
        step = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - reach - 0.5
        inside = (np.hypot(step[:, None], step[None]) <= self.size).astype(np.float32)
        kernel: Any = cv2.resize(inside, (2 * reach + 1, 2 * reach + 1), interpolation=cv2.INTER_AREA)
        return np.asarray(cv2.filter2D(grey, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT), np.float32)


BLURS: Final = (*(Blur("gaussian", sigma) for sigma in (1, 1.5, 2, 3)), Blur("disc", 2), Blur("disc", 3))


def uploaded(blurred: NDArray[np.float32], seed: int = 0) -> Pixels:
    """With noise of one level, as JPEG of quality 95."""
    noisy = blurred + np.random.default_rng(seed).normal(0, 1, blurred.shape)
    levels = np.clip(noisy, 0, 255).round().astype(np.uint8)
    data = cv2.imencode(".jpeg", levels[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)[..., ::-1].copy()


def psnr(a: Pixels, b: Pixels) -> float:
    inner = slice(_EDGE, -_EDGE)
    error = float(np.mean((a[inner, inner].astype(np.float64) - b[inner, inner]) ** 2))
    return 10 * math.log10(255**2 / max(error, 1e-6))


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
    gains = []
    for kind in KINDS:
        for seed in (0, 1):
            sharp = kind(seed)
            before = uploaded(blur.of(sharp), seed)
            gains.append(psnr(RESTORER.restore(before, None), sharp) - psnr(before, sharp))
    assert mean(gains) > 1.0
    assert min(gains) > -0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_sharp_pictures_stay_as_they_are(kind: Callable[[int], Pixels], seed: int) -> None:
    sharp = uploaded(kind(seed).astype(np.float32))
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
