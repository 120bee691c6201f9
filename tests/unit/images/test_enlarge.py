from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from deployments.images import Pixels, enlarge_sharp, fit

pytestmark = pytest.mark.slow

BLUE, YELLOW = np.array([20, 40, 160]), np.array([250, 220, 40])


def disc(width: int, height: int) -> Pixels:
    """Returns an antialiased yellow ellipse on blue."""
    y, x = np.mgrid[0 : 4 * height, 0 : 4 * width] + 0.5
    inside = np.hypot(x / (4 * width) - 0.5, y / (4 * height) - 0.5) < 0.28
    fine = np.where(inside[..., None], YELLOW, BLUE).astype(np.uint8)
    return np.asarray(cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def decode(image: Pixels) -> Pixels:
    """Blurs an image slightly, as decoders do."""
    return np.asarray(cv2.GaussianBlur(image, (0, 0), 0.8), dtype=np.uint8)


def edge_width(line: Pixels) -> int:
    """Counts the pixels of a line that are not within 10 % of its darkest or brightest."""
    fraction = (line - line.min().astype(float)) / float(line.max() - line.min())
    return int(np.count_nonzero((fraction > 0.1) & (fraction < 0.9)))


@pytest.mark.parametrize(
    ("rendered", "size"), [((128, 128), (1024, 1024)), ((96, 176), (768, 1344)), ((128, 128), (100, 300))]
)
def test_edges_are_a_few_pixels_wide(rendered: tuple[int, int], size: tuple[int, int]) -> None:
    pixels = enlarge_sharp(decode(disc(*rendered)), *size)
    truth = disc(*size)
    assert pixels.shape == truth.shape
    assert pixels.dtype == np.uint8
    middle = pixels[size[1] // 2, :, 0]
    assert edge_width(middle) <= 2 * 4
    assert np.abs(pixels.astype(int) - truth).mean() < 2


def test_sharp_enlargement_beats_interpolation() -> None:
    truth, small = disc(1024, 1024).astype(int), decode(disc(128, 128))
    errors = {how: np.square(fit(small, 1024, 1024, how) - truth).mean() for how in ("smooth", "sharp")}
    assert errors["sharp"] < errors["smooth"] / 10


def test_sharp_enlargement_has_no_halos() -> None:
    pixels = enlarge_sharp(decode(disc(128, 128)), 1024, 1024).reshape(-1, 3).astype(int)
    assert (pixels >= np.minimum(BLUE, YELLOW) - 1).all()
    assert (pixels <= np.maximum(BLUE, YELLOW) + 1).all()


def test_gradients_stay_smooth() -> None:
    ramp = np.linspace(0, 255, 128).round().astype(np.uint8)
    pixels = enlarge_sharp(np.ascontiguousarray(np.broadcast_to(ramp[None, :, None], (128, 128, 3))), 1024, 1024)
    steps = np.diff(pixels[512, :, 0].astype(int))
    assert steps.min() >= 0
    assert steps.max() <= 2


def test_only_shrinking_averages_pixels() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    means = noise.reshape(64, 2, 64, 2, 3).mean(axis=(1, 3))
    for how in ("smooth", "sharp"):
        assert fit(noise, 128, 128, how) is noise
        assert np.abs(fit(noise, 64, 64, how) - means).max() <= 1


def test_shifted_channels_get_no_colour_fringes() -> None:
    small = decode(disc(128, 128))
    small[..., 0] = cv2.addWeighted(small[..., 0], 0.7, np.roll(small[..., 0], 1, axis=1), 0.3, 0)  # red, to the right
    pixels = enlarge_sharp(small, 1024, 1024).reshape(-1, 3).astype(float)
    assert np.count_nonzero(off_the_line(pixels) > 60) < 0.0003 * len(pixels)


def test_thin_lines_keep_their_colour() -> None:
    image = np.full((64, 64, 3), YELLOW, np.uint8)
    image[:, 32:] = (240, 240, 240)
    image[:, 31:33] = (20, 20, 20)
    across = enlarge_sharp(image, 512, 512)[256]
    for x, colour in ((240, YELLOW), (256, (20, 20, 20)), (272, (240, 240, 240))):
        assert np.abs(across[x].astype(int) - colour).max() <= 30


def off_the_line(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the distances (N,) of colours (N, 3) from mixtures of the disc's and the background's colour."""
    line = YELLOW - BLUE
    fraction = ((pixels - BLUE) @ line / (line @ line)).clip(0, 1)
    return np.linalg.norm(pixels - (BLUE + fraction[:, None] * line), axis=1)
