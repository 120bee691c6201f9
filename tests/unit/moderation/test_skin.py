from __future__ import annotations

from random import Random

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from support.shapes import random_scene

from deployments.contract.moderation import JudgeSpec
from deployments.images import Pixels
from deployments.moderation.known_pictures import HIGHEST, SkinJudge

SIDE = 512
TONES = [(255, 224, 196), (198, 134, 106), (141, 85, 60), (74, 46, 36)]


def score(picture: Pixels) -> float:
    [scores] = SkinJudge(JudgeSpec("skin")).judge([picture])
    assert list(scores) == ["sexual content"]
    return scores["sexual content"]


def noise(seed: int, power: float) -> npt.NDArray[np.float64]:
    """(SIDE, SIDE) of mean 0 and deviation 1, its spectrum falling with the frequency to `power`."""
    waves = np.fft.rfft2(np.random.default_rng(seed).standard_normal((SIDE, SIDE)))
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None] * SIDE, np.fft.rfftfreq(SIDE)[None] * SIDE)
    frequency[0, 0] = np.inf
    values = np.fft.irfft2(waves / frequency**power, s=(SIDE, SIDE))
    return values / values.std()


def pixels(values: npt.NDArray[np.floating]) -> Pixels:
    return np.clip(values, 0, 255).astype(np.uint8)


def body(tone: tuple[int, int, int], share: float) -> Pixels:
    """A rounded, finely textured shape over `share` of a bluish, cloudy ground."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE - 0.5
    tall = np.sqrt(share / np.pi / 0.75)
    radius = np.hypot(x / (0.75 * tall), y / tall)
    light = 0.85 + 0.25 * np.sqrt(np.clip(1 - (0.95 * radius) ** 2, 0, 1)) + 0.08 * x
    skin = np.array(tone) * (light * (1 + 0.02 * noise(1, 1)))[..., None]
    ground = np.array([60, 90, 130]) + 25 * noise(2, 1)[..., None]
    inside = cv2.GaussianBlur((radius < 1).astype(np.float64), (0, 0), 1.5)[..., None]
    return pixels(ground * (1 - inside) + skin * inside)


@pytest.mark.parametrize("tone", TONES)
def test_much_skin_of_any_tone_scores_high_and_little_does_not(tone: tuple[int, int, int]) -> None:
    assert 0.4 < score(body(tone, 0.45)) <= HIGHEST
    assert score(body(tone, 0.25)) < 0.25
    assert score(body(tone, 0.06)) == 0
    assert score(body(TONES[1], 0.6)) == HIGHEST == 0.6


def test_drawn_scenes_are_no_skin_nor_are_they_after_compression() -> None:
    random = Random(1)
    for index in range(40):
        picture = random_scene(random, 1 + index % 3).drawn(256, 256)
        assert score(picture) < 0.05
        compressed = cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 50])[1], 1)
        assert score(np.asarray(compressed, np.uint8)) < 0.3


@pytest.mark.parametrize("tone", TONES)
def test_flat_rough_and_evenly_shaded_areas_in_the_colours_of_skin_are_none(tone: tuple[int, int, int]) -> None:
    flat = np.tile(np.array(tone, np.float64), (SIDE, SIDE, 1))
    assert score(pixels(flat)) == 0
    assert score(pixels(flat * np.linspace(0.6, 1, SIDE)[:, None, None])) == 0
    rough = flat * (1 + 0.6 * cv2.resize(noise(3, 0), None, fx=2, fy=2)[:SIDE, :SIDE, None])
    assert score(pixels(rough)) == 0
    grainy = flat + np.random.default_rng(0).normal(0, 3, (SIDE, SIDE, 1))
    assert score(pixels(grainy)) == 0


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 2), (9, 9)])
def test_any_size(size: tuple[int, int]) -> None:
    assert score(np.full((*size, 3), TONES[1], np.uint8)) == 0
