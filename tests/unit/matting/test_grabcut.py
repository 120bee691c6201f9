from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from deployments.matting import cut_out

Mask = npt.NDArray[np.bool_]
SIZE = 200


def ground(kind: str) -> npt.NDArray[np.uint8]:
    plain = np.full((SIZE, SIZE, 3), (40, 60, 160), np.uint8)
    if kind == "gradient":
        plain[..., 2] = np.linspace(120, 220, SIZE, dtype=np.uint8)[:, None]
    if kind == "noisy":
        noise = np.random.default_rng(0).integers(-15, 16, plain.shape)
        plain = np.clip(plain.astype(int) + noise, 0, 255).astype(np.uint8)
    return plain


def with_circle(kind: str, x: int, y: int, radius: int) -> tuple[npt.NDArray[np.uint8], Mask]:
    truth = np.zeros((SIZE, SIZE), np.uint8)
    cv2.circle(truth, (x, y), radius, 1, -1)
    picture = ground(kind)
    picture[truth > 0] = (220, 50, 40)
    return picture, truth > 0


def overlap(a: Mask, b: Mask) -> float:
    return float((a & b).sum() / (a | b).sum())


@pytest.mark.parametrize("kind", ["plain", "gradient", "noisy"])
@pytest.mark.parametrize(("x", "y", "radius"), [(100, 100, 60), (60, 120, 30)])
def test_the_subject_is_kept_and_the_ground_is_not(kind: str, x: int, y: int, radius: int) -> None:
    picture, truth = with_circle(kind, x, y, radius)
    cut = cut_out(picture)
    assert cut.shape == (SIZE, SIZE, 4)
    assert np.array_equal(cut[..., :3], picture)
    assert overlap(cut[..., 3] > 127, truth) >= 0.9


def test_the_same_picture_gives_the_same_cut() -> None:
    picture, _ = with_circle("noisy", 80, 90, 40)
    assert np.array_equal(cut_out(picture), cut_out(picture))


def test_a_picture_without_a_subject_stays_opaque() -> None:
    assert (cut_out(ground("plain"))[..., 3] == 255).all()


@pytest.mark.parametrize("size", [(64, 700), (700, 64), (9, 9)])
def test_any_size(size: tuple[int, int]) -> None:
    assert cut_out(np.zeros((*size, 3), np.uint8)).shape == (*size, 4)


def test_a_thin_subject_is_not_lost() -> None:
    picture = np.full((1024, 1024, 3), 20, np.uint8)
    picture[510:514, 100:900] = 240
    assert cut_out(picture)[..., 3].max() > 0
