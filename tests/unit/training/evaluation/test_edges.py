from __future__ import annotations

import cv2
import numpy as np
import pytest

from training.evaluation import edges
from training.worlds import shapes
from training.worlds.pictures.drawing import Pixels, drawn
from training.worlds.pictures.scene import Background, Scene, Thing

GRID, SIZE = (8, 8), (1024, 1024)


def blurred(pixels: Pixels, sigma: float) -> Pixels:
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), sigma), np.uint8)


@pytest.mark.parametrize("shape", shapes.NAMES)
def test_the_width_of_edges_is_measured(shape: str) -> None:
    scene = Scene((Thing(shape, "red", size="large"),), Background("white"))
    picture = drawn(scene, GRID, SIZE)
    assert edges.width(picture, scene, GRID) <= 2.5
    # A step blurred by sigma rises from 10 % to 90 % within 2.56 sigma.
    assert edges.width(blurred(picture, 5), scene, GRID) == pytest.approx(12.8, abs=1.5)


def test_a_picture_without_the_thing_has_no_sharp_edges() -> None:
    scene = Scene((Thing("square", "red", size="large"),), Background("white"))
    assert edges.width(drawn(Scene((), scene.background), GRID, SIZE), scene, GRID) > 50


def test_edges_agree_when_they_are_within_two_pixels() -> None:
    scene = Scene((Thing("square", "red", size="large"),), Background("white"))
    found = edges.found(drawn(scene, GRID, (128, 128)))
    assert edges.agreement(found, found) == 1
    assert edges.agreement(np.roll(found, 2, axis=1), found) == 1
    assert edges.agreement(np.roll(found, 8, axis=(0, 1)), found) < 0.3
    assert edges.agreement(np.zeros_like(found), found) == 0
    assert edges.agreement(np.zeros_like(found), np.zeros_like(found)) == 1


def test_fringes_are_colours_that_are_no_mixture_of_the_two_beside_them() -> None:
    scene = Scene((Thing("circle", "yellow", size="large"),), Background("blue"))
    picture = drawn(scene, GRID, SIZE)
    assert edges.fringe(picture, scene, GRID) < 3
    shifted = np.stack([np.roll(picture[..., 0], 2, axis=1), picture[..., 1], picture[..., 2]], axis=2)
    assert edges.fringe(shifted, scene, GRID) > 10
