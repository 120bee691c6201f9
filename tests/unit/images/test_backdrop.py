from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.images import Backdrop, recompress
from deployments.video.writer import VideoFileError

Pixels = npt.NDArray[np.uint8]
SIZE = (160, 240)


def left_half() -> npt.NDArray[np.bool_]:
    repaint = np.zeros(SIZE, bool)
    repaint[:, : SIZE[1] // 2] = True
    return repaint


def plain(level: int) -> Pixels:
    return np.full((*SIZE, 3), level, np.uint8)


def test_kept_pixels_are_unchanged() -> None:
    random = np.random.default_rng(0)
    image, output = (random.integers(0, 256, (*SIZE, 3), dtype=np.uint8) for _ in range(2))
    repaint = random.random(SIZE) < 0.5
    laid = Backdrop(image, repaint).under(output)
    assert np.array_equal(laid[~repaint], image[~repaint])


@pytest.mark.parametrize("off", [-25, -5, 5, 25])
def test_small_tone_difference_leaves_no_seam(off: int) -> None:
    laid = Backdrop(plain(120), left_half()).under(plain(120 + off)).astype(int)
    border = SIZE[1] // 2
    assert abs(laid[:, border - 1] - 120).max() <= max(1, abs(off) * 0.15), "a step at the border"
    assert abs(laid[:, :40] - (120 + off)).max() == 0, "pixels far from the border changed"
    assert abs(np.diff(laid[..., 0], axis=1)).max() <= 3, "a step elsewhere"


def test_large_difference_is_not_corrected() -> None:
    """If the model drew something else on the kept side, its tones are not comparable."""
    laid = Backdrop(plain(250), left_half()).under(plain(30))
    assert (laid[:, : SIZE[1] // 2] == 30).all()


@pytest.mark.parametrize("everything", [True, False])
def test_backdrop_covers_all_or_nothing(everything: bool) -> None:
    laid = Backdrop(plain(10), np.full(SIZE, everything)).under(plain(30))
    assert (laid == (30 if everything else 10)).all()


@given(st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_backdrop_of_any_size(height: int, width: int, first: bool) -> None:
    repaint = np.zeros((height, width), bool)
    repaint[0, 0] = first
    image = np.zeros((height, width, 3), np.uint8)
    assert Backdrop(image, repaint).under(image).shape == image.shape


@pytest.mark.parametrize(("height", "width"), [(64, 96), (65, 97), (200, 120)])
def test_higher_crf_loses_more_detail(height: int, width: int) -> None:
    y, x = np.ogrid[:height, :width]
    channels = np.broadcast_arrays(np.sin(x / 7) * np.cos(y / 5), np.cos(x / 15 + y / 20), np.sin(y / 30 + x / 50))
    image = (127.5 + 100 * np.stack(channels, axis=-1)).astype(np.uint8)
    images = [recompress(image, crf).astype(int) for crf in (1, 33, 51)]
    little, usual, much = (np.abs(pixels - image[: height // 2 * 2, : width // 2 * 2]).mean() for pixels in images)
    assert 0 < little < min(3, usual)
    assert usual < min(12, much)


def test_image_with_one_row_cannot_be_compressed() -> None:
    with pytest.raises(VideoFileError, match="compressed"):
        recompress(np.zeros((1, 64, 3), np.uint8), 33)
