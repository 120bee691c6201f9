from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from deployments.images import Pixels, fitted, sharp

pytestmark = pytest.mark.slow

BLUE, YELLOW = np.array([20, 40, 160]), np.array([250, 220, 40])


def disc(width: int, height: int) -> Pixels:
    """A yellow ellipse on blue, of a 128 x 128 picture stretched to the size. Smooth outlines, by 4 x 4 samples."""
    y, x = np.mgrid[0 : 4 * height, 0 : 4 * width] + 0.5
    inside = np.hypot(x / (4 * width) - 0.5, y / (4 * height) - 0.5) < 0.28
    fine = np.where(inside[..., None], YELLOW, BLUE).astype(np.uint8)
    return np.asarray(cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def decoded(picture: Pixels) -> Pixels:
    """A little soft, as decoders leave pictures."""
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), 0.8), dtype=np.uint8)


def edge_width(line: Pixels) -> int:
    """Pixels of a line of them that are neither within 10 % of its darkest nor of its brightest."""
    share = (line - line.min().astype(float)) / float(line.max() - line.min())
    return int(np.count_nonzero((share > 0.1) & (share < 0.9)))


@pytest.mark.parametrize(
    ("rendered", "wanted"), [((128, 128), (1024, 1024)), ((96, 176), (768, 1344)), ((128, 128), (100, 300))]
)
def test_edges_are_a_few_pixels_wide_at_any_factor(rendered: tuple[int, int], wanted: tuple[int, int]) -> None:
    pixels = sharp(decoded(disc(*rendered)), *wanted)
    truth = disc(*wanted)
    assert pixels.shape == truth.shape
    assert pixels.dtype == np.uint8
    middle = pixels[wanted[1] // 2, :, 0]
    assert edge_width(middle) <= 2 * 4
    assert np.abs(pixels.astype(int) - truth).mean() < 2


def test_it_is_much_nearer_to_the_drawing_than_interpolation() -> None:
    truth, small = disc(1024, 1024).astype(int), decoded(disc(128, 128))
    errors = {how: np.square(fitted(small, 1024, 1024, how) - truth).mean() for how in ("smooth", "sharp")}
    assert errors["sharp"] < errors["smooth"] / 10


def test_there_are_no_halos() -> None:
    pixels = sharp(decoded(disc(128, 128)), 1024, 1024).reshape(-1, 3).astype(int)
    assert (pixels >= np.minimum(BLUE, YELLOW) - 1).all()
    assert (pixels <= np.maximum(BLUE, YELLOW) + 1).all()


def test_gradients_stay_gradients() -> None:
    ramp = np.linspace(0, 255, 128).round().astype(np.uint8)
    pixels = sharp(np.ascontiguousarray(np.broadcast_to(ramp[None, :, None], (128, 128, 3))), 1024, 1024)
    steps = np.diff(pixels[512, :, 0].astype(int))
    assert steps.min() >= 0
    assert steps.max() <= 2


def test_what_has_the_size_already_is_left_alone() -> None:
    picture = decoded(disc(64, 48))
    assert fitted(picture, 64, 48, "sharp") is picture
    assert fitted(picture, 64, 48, "smooth") is picture


def test_smaller_pictures_are_averages() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    means = noise.reshape(64, 2, 64, 2, 3).mean(axis=(1, 3))
    for how in ("smooth", "sharp"):
        assert np.abs(fitted(noise, 64, 64, how) - means).max() <= 1


def test_edges_whose_channels_are_not_in_one_place_get_no_fringes_of_other_colours() -> None:
    small = decoded(disc(128, 128))
    small[..., 0] = cv2.addWeighted(small[..., 0], 0.7, np.roll(small[..., 0], 1, axis=1), 0.3, 0)  # red, to the right
    pixels = sharp(small, 1024, 1024).reshape(-1, 3).astype(float)
    assert np.count_nonzero(off_the_line(pixels) > 60) < 0.0003 * len(pixels)


def test_thin_lines_between_two_other_colours_keep_their_own() -> None:
    picture = np.full((64, 64, 3), YELLOW, np.uint8)
    picture[:, 32:] = (240, 240, 240)
    picture[:, 31:33] = (20, 20, 20)
    across = sharp(picture, 512, 512)[256]
    for x, colour in ((240, YELLOW), (256, (20, 20, 20)), (272, (240, 240, 240))):
        assert np.abs(across[x].astype(int) - colour).max() <= 30


def off_the_line(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,): how far colours (N, 3) are from any mixture of the disc's and its background's."""
    line = YELLOW - BLUE
    share = ((pixels - BLUE) @ line / (line @ line)).clip(0, 1)
    return np.linalg.norm(pixels - (BLUE + share[:, None] * line), axis=1)
