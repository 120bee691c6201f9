"""Pictures that were blurred in a known way, as they come from a client."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.pictures.pixels import Pixels

Floats = npt.NDArray[np.float32]
_EDGE: Final = 16
"""Pixels along the rim that do not count: what was blurred into them lay outside the picture."""


def clouds(seed: int, side: int = 256) -> Pixels:
    """Noise of a photograph's spectrum: amplitudes fall as 1/f, colours alike."""
    random = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    frequency[0, 0] = np.inf
    grey, *tints = (np.fft.ifft2(np.fft.fft2(random.normal(size=(side, side))) / frequency).real for _ in range(4))
    layers = np.dstack([grey / grey.std() + 0.35 * tint / tint.std() for tint in tints])
    return np.clip(layers * 45 + 125, 0, 255).round().astype(np.uint8)


def leaves(seed: int, side: int = 256) -> Pixels:
    """Dead leaves (Lee, Mumford and Huang, 2001): discs that hide each other, as many small as photographs have."""
    random = np.random.default_rng(seed)
    fine = 4 * side
    picture = np.full((fine, fine, 3), 90, np.uint8)
    for _ in range(1500):
        radius = 12 / math.sqrt(random.uniform(0.002, 1.0))  # radii fall as 1/r^3
        x, y = random.integers(0, fine, 2)
        colour = np.clip(random.uniform(20, 235) + random.normal(0, 30, 3), 0, 255).tolist()
        cv2.circle(picture, (int(x), int(y)), round(radius), colour, -1)
    texture = cv2.resize(clouds(seed + 1, side).astype(np.float32) - 125, (fine, fine), interpolation=cv2.INTER_LINEAR)
    textured = np.clip(picture + 0.25 * texture, 0, 255).astype(np.uint8)
    return np.asarray(cv2.resize(textured, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


@dataclass(frozen=True, slots=True)
class Blur:
    kind: str
    size: float
    """Sigma of a Gaussian, radius of a disc, in pixels."""

    def __str__(self) -> str:
        return f"{self.kind} {self.size:g}"

    def of(self, pixels: Pixels) -> Floats:
        grey = pixels.astype(np.float32)
        if self.kind == "gaussian":
            return np.asarray(cv2.GaussianBlur(grey, (0, 0), self.size, borderType=cv2.BORDER_REFLECT), np.float32)
        reach, fine = math.ceil(self.size), 16
        step = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - reach - 0.5
        inside = (np.hypot(step[:, None], step[None]) <= self.size).astype(np.float32)
        kernel: Any = cv2.resize(inside, (2 * reach + 1, 2 * reach + 1), interpolation=cv2.INTER_AREA)
        return np.asarray(cv2.filter2D(grey, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT), np.float32)


def uploaded(blurred: Floats, seed: int = 0) -> Pixels:
    """With noise of one level, as JPEG of quality 95."""
    noisy = blurred + np.random.default_rng(seed).normal(0, 1, blurred.shape)
    levels = np.clip(noisy, 0, 255).round().astype(np.uint8)
    data = cv2.imencode(".jpeg", levels[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)[..., ::-1].copy()


def psnr(a: Pixels, b: Pixels) -> float:
    inner = slice(_EDGE, -_EDGE)
    error = float(np.mean((a[inner, inner].astype(np.float64) - b[inner, inner]) ** 2))
    return 10 * math.log10(255**2 / max(error, 1e-6))
