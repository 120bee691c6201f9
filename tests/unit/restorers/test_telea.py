from __future__ import annotations

import cv2
import numpy as np
import pytest

from deployments.contract.model import ModelSpec
from deployments.images import Pixels
from deployments.restorers import load_restorer

TELEA = load_restorer(ModelSpec(checkpoint="", objects_url="memory:///", backend="telea"))


def ground(height: int, width: int) -> Pixels:
    """A gradient of two colours."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    return np.dstack((60 + 120 * x, 200 - 100 * y, 90 + 60 * x + 60 * y)).astype(np.uint8)


def spotted(height: int, width: int, radius: int) -> tuple[Pixels, Pixels, Pixels]:
    """The ground with a red spot, its mask, and the ground."""
    plain = ground(height, width)
    mask = np.zeros((height, width), np.uint8)
    cv2.circle(mask, (width // 3, height // 2), radius + 3, 255, -1)
    spot = plain.copy()
    cv2.circle(spot, (width // 3, height // 2), radius, (230, 20, 30), -1)
    return spot, mask, plain


@pytest.mark.parametrize(("size", "radius"), [((200, 300), 5), ((200, 300), 40), ((1024, 1024), 200)])
def test_a_spot_goes_and_the_ground_goes_on(size: tuple[int, int], radius: int) -> None:
    picture, mask, plain = spotted(*size, radius)
    drawn = TELEA.restore(picture, mask)
    off = np.abs(drawn.astype(int) - plain)[mask > 0]
    assert off.mean() < 8
    assert np.percentile(off, 99) < 32


@pytest.mark.parametrize("radius", [5, 200])
def test_outside_the_mask_pixels_are_those_that_came(radius: int) -> None:
    picture, mask, _ = spotted(600, 800, radius)
    sent = picture.copy()
    drawn = TELEA.restore(picture, mask)
    assert np.array_equal(drawn[mask == 0], sent[mask == 0])
    assert np.array_equal(picture, sent)


def test_nothing_to_do() -> None:
    picture, mask, _ = spotted(60, 80, 9)
    for useless in (None, np.zeros_like(mask), np.full_like(mask, 255)):
        assert np.array_equal(TELEA.restore(picture, useless), picture)


@pytest.mark.parametrize("size", [(1, 9), (3, 3), (16, 500)])
def test_any_size(size: tuple[int, int]) -> None:
    mask = np.zeros(size, np.uint8)
    mask[0, 1] = 255
    assert TELEA.restore(ground(*size), mask).shape == (*size, 3)
