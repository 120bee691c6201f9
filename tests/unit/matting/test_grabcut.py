from __future__ import annotations

from random import Random

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from support.scenes import PATTERNS, Pattern, random_scene

from deployments.contract.model import MattingConfig
from deployments.images import Pixels
from deployments.matting import load_background_remover

Mask = npt.NDArray[np.bool_]
SIZE = 200
GRABCUT = load_background_remover(MattingConfig(backend="grabcut"))


def ground(kind: str) -> Pixels:
    plain = np.full((SIZE, SIZE, 3), (40, 60, 160), np.uint8)
    if kind == "gradient":
        plain[..., 2] = np.linspace(120, 220, SIZE, dtype=np.uint8)[:, None]
    if kind == "noisy":
        noise = np.random.default_rng(0).integers(-15, 16, plain.shape)
        plain = np.clip(plain.astype(int) + noise, 0, 255).astype(np.uint8)
    return plain


def with_circle(kind: str, x: int, y: int, radius: int) -> tuple[Pixels, Mask]:
    truth = np.zeros((SIZE, SIZE), np.uint8)
    cv2.circle(truth, (x, y), radius, 1, -1)
    image = ground(kind)
    image[truth > 0] = (220, 50, 40)
    return image, truth > 0


def overlap(a: Mask, b: Mask) -> float:
    return float((a & b).sum() / (a | b).sum())


@pytest.mark.parametrize(
    ("kind", "x", "y", "radius"),
    [("plain", 60, 120, 30), ("gradient", 100, 100, 60), ("gradient", 100, 199, 80), ("noisy", 10, 10, 70)],
    ids=["inside", "large", "at a side", "in a corner"],
)
def test_subject_is_cut_from_its_ground(kind: str, x: int, y: int, radius: int) -> None:
    image, truth = with_circle(kind, x, y, radius)
    alpha = GRABCUT.alpha(image)
    assert overlap(alpha > 127, truth) >= 0.9
    assert np.array_equal(GRABCUT.alpha(image), alpha), "the same image gives the same cut"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterned_ground_is_transparent(pattern: Pattern) -> None:
    """Scenes of one to three things at 1024 x 1024."""
    random = Random(pattern)
    for things in (1, 2, 3):
        scene = random_scene(random, things, pattern)
        assert overlap(GRABCUT.alpha(scene.draw(1024, 1024)) > 127, scene.mask(1024, 1024)) >= 0.9, scene


@pytest.mark.parametrize("kind", ["plain", "gradient"])
def test_image_without_a_subject_stays_opaque(kind: str) -> None:
    assert (GRABCUT.alpha(ground(kind)) == 255).all()


@pytest.mark.parametrize("size", [(64, 700), (700, 64), (9, 9), (1, 1)])
def test_cut_has_the_images_size(size: tuple[int, int]) -> None:
    assert GRABCUT.alpha(np.zeros((*size, 3), np.uint8)).shape == size


def test_thin_subject_is_kept() -> None:
    image = np.full((1024, 1024, 3), 20, np.uint8)
    image[510:514, 100:900] = 240
    assert GRABCUT.alpha(image).max() > 0
