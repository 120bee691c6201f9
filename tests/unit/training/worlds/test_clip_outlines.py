from __future__ import annotations

import cv2
import numpy as np
import pytest

from training.worlds.clips.drawing import frames
from training.worlds.clips.judge import Frames
from training.worlds.clips.outlines import figures
from training.worlds.clips.scene import SHAPES, Scene

GRID, COUNT = (4, 7), 25


def drawn(scene: Scene) -> Frames:
    return ((frames(scene, GRID, COUNT).permute(0, 2, 3, 1) + 1) / 2).numpy()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_drawn_clip_has_its_shape_sharp_and_in_one_colour(shape: str) -> None:
    found = figures(shape, drawn(Scene(shape, "red", "white", "left", "large")))
    assert found["mean IoU"] > 0.93
    assert found["median edge px"] < 3
    assert found["mean drift"] < 3


@pytest.mark.parametrize("shape", SHAPES)
def test_another_shape_agrees_less(shape: str) -> None:
    clip = drawn(Scene(shape, "red", "white", "still", "large"))
    assert all(figures(other, clip)["mean IoU"] < 0.87 for other in SHAPES if other != shape)


def test_a_soft_outline_is_as_wide_as_it_is() -> None:
    clip = drawn(Scene("square", "red", "white", "still", "large"))
    soft = np.stack([cv2.GaussianBlur(frame, (0, 0), 4) for frame in clip])
    assert figures("square", soft)["median edge px"] == pytest.approx(4 * 2.563, rel=0.15)


def test_a_colour_that_changes_is_seen() -> None:
    clip = drawn(Scene("square", "red", "white", "still", "large"))
    fading = np.linspace(1, 0.8, len(clip))[:, None, None, None].astype(np.float32)
    assert figures("square", np.where(clip[..., 1:2] < 0.5, clip * fading, clip))["mean drift"] > 10


def test_nothing_is_no_shape() -> None:
    empty = np.full((COUNT, 128, 224, 3), 0.5, np.float32)
    assert figures("circle", empty) == {"mean IoU": 0.0, "median edge px": 60.0, "mean drift": 0.0}
