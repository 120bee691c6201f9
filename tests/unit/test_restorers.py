from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import mean
from typing import Final

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from support.scenes import random_scene

from deployments.contract.model import ModelSpec
from deployments.images import Pixels
from deployments.restorers import load_restorer

RESTORER = load_restorer(ModelSpec(checkpoint="", objects_url="memory:///", backend="deconvolution", threads=1))
TELEA = load_restorer(ModelSpec(checkpoint="", objects_url="memory:///", backend="telea"))
EDGE: Final = 16
"""Pixels along the rim that do not count, as pixels outside the image were blurred into them."""


def shapes(seed: int) -> Pixels:
    return random_scene(Random(seed), 1 + seed % 3).draw(256, 256)


def leaves(seed: int) -> Pixels:
    """Dead leaves (Lee, Mumford and Huang, 2001): discs that hide each other, as many small as photographs have."""
    random = np.random.default_rng(seed)
    fine = np.full((1024, 1024, 3), 90, np.uint8)
    for _ in range(1500):
        radius = 12 / math.sqrt(random.uniform(0.002, 1.0))  # radii fall as 1/r^3
        x, y = random.integers(0, 1024, 2)
        cv2.circle(fine, (int(x), int(y)), round(radius), random.uniform(20, 235, 3).tolist(), -1)
    return np.asarray(cv2.resize(fine, (256, 256), interpolation=cv2.INTER_AREA), np.uint8)


def blur(pixels: Pixels, sigma: float) -> NDArray[np.float32]:
    return np.asarray(cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), sigma), np.float32)


def simulate_upload(levels: NDArray[np.floating], noise: float = 1) -> Pixels:
    """Returns the image as a client's JPEG of quality 95."""
    noisy = levels + np.random.default_rng(0).normal(0, noise, levels.shape)
    encoded = cv2.imencode(".jpeg", np.clip(noisy, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR), np.uint8)


def psnr(a: Pixels, b: Pixels) -> float:
    inner = slice(EDGE, -EDGE)
    error = float(np.mean((a[inner, inner].astype(np.float64) - b[inner, inner]) ** 2))
    return 10 * math.log10(255**2 / max(error, 1e-6))


@pytest.mark.parametrize("sigma", [1, 3])
def test_blurred_images_get_sharper(sigma: float) -> None:
    gains = []
    for sharp in (shapes(0), shapes(1), leaves(0), leaves(1)):
        before = simulate_upload(blur(sharp, sigma))
        gains.append(psnr(RESTORER.restore(before, None), sharp) - psnr(before, sharp))
    assert mean(gains) > 1.0
    assert min(gains) > 0.0


@pytest.mark.parametrize("kind", [shapes, leaves])
def test_sharp_images_are_unchanged(kind: Callable[[int], Pixels]) -> None:
    sharp = simulate_upload(kind(0).astype(np.float32))
    assert np.array_equal(RESTORER.restore(sharp, None), sharp)


def test_sharpening_makes_no_halo_and_keeps_noise_low() -> None:
    step = np.full((256, 256, 3), 70, np.uint8)
    step[:, 128:] = 180
    restored = RESTORER.restore(simulate_upload(blur(step, 2)), None).astype(int)
    assert restored.min() >= 70 - 12
    assert restored.max() <= 180 + 12
    noisy = simulate_upload(blur(step, 2), 6)
    assert RESTORER.restore(noisy, None)[16:-16, 20:100].std() < 1.2 * noisy[16:-16, 20:100].std()


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (257, 100)])
def test_restored_image_keeps_its_size(size: tuple[int, int]) -> None:
    random = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    assert RESTORER.restore(blur(random, 2).round().astype(np.uint8), None).shape == (*size, 3)
    mask = np.zeros(size, np.uint8)
    mask[0, -1] = 255
    assert TELEA.restore(ground(*size), mask).shape == (*size, 3)


def ground(height: int, width: int) -> Pixels:
    """A gradient of two colours."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    return np.dstack((60 + 120 * x, 200 - 100 * y, 90 + 60 * x + 60 * y)).astype(np.uint8)


def draw_spots(height: int, width: int, radius: int) -> tuple[Pixels, Pixels, Pixels]:
    """Returns the ground with a red spot, its mask, and the ground."""
    plain = ground(height, width)
    mask = np.zeros((height, width), np.uint8)
    cv2.circle(mask, (width // 3, height // 2), radius + 3, 255, -1)
    spot = plain.copy()
    cv2.circle(spot, (width // 3, height // 2), radius, (230, 20, 30), -1)
    return spot, mask, plain


@pytest.mark.parametrize(("size", "radius"), [((200, 300), 5), ((1024, 1024), 200)])
def test_only_the_masked_spot_is_replaced_by_its_ground(size: tuple[int, int], radius: int) -> None:
    image, mask, plain = draw_spots(*size, radius)
    original = image.copy()
    output = TELEA.restore(image, mask)
    assert np.array_equal(output[mask == 0], original[mask == 0])
    assert np.array_equal(image, original)
    off = np.abs(output.astype(int) - plain)[mask > 0]
    assert off.mean() < 8
    assert np.percentile(off, 99) < 32


def test_empty_or_full_mask_changes_nothing() -> None:
    image, mask, _ = draw_spots(60, 80, 9)
    for useless in (None, np.zeros_like(mask), np.full_like(mask, 255)):
        assert np.array_equal(TELEA.restore(image, useless), image)
