"""Restorers: image to image in one pass, without prompt or steps.

A restorer is a classic algorithm, or a network in ONNX or torch: a class made from the model's spec, and a line in
`contract.model.RESTORERS`.
"""

from __future__ import annotations

import math
import pkgutil
from typing import Final, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from deployments.contract.model import RESTORERS, ModelSpec
from deployments.images import Pixels, resize


class Restorer(Protocol):
    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        """Restores (H, W, 3) RGB. `mask`, (H, W), is 255 where to repaint, else 0; None for the whole image.

        Raises JobError for a job that can't be done.
        """
        ...


def load_restorer(spec: ModelSpec) -> Restorer:
    """Loads the restorer of `spec.backend`, which may take long. Raises CheckpointError."""
    restorer: Restorer = pkgutil.resolve_name(RESTORERS[spec.backend])(spec)
    return restorer


_PROBE: Final = 0.6
_REBLUR: Final = 1.0
"""Sigmas in pixels: of the blur that reduces noise before gradients are computed, and of the second blur."""
_MAX_SHARP: Final = 0.78
"""Measured width of a sharp image's edges at most, as pixels have a width themselves."""
_PERCENTILE: Final = 30
"""Percentile of the widths of strong edges: most images have soft edges, too, but none sharper than the blur."""
_SMOOTH: Final = 0.008
"""Weight of steepness against the input image, for noise of one level in 255."""


class Deconvolution:
    """Implements Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Uses only the threads of the spec, as there are no weights."""
        cv2.setNumThreads(spec.threads or -1)

    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        """Returns an image that is already sharp unchanged."""
        sigma = edge_width(image)
        return image if sigma <= _MAX_SHARP else _sharpen(image, sigma)


def edge_width(image: Pixels) -> float:
    """Returns the sigma, in pixels, of a Gaussian blur with edges as wide as the sharper strong ones; 0 without any."""
    grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.float32)
    once, twice = (_steepness(grey, sigma) for sigma in (_PROBE, math.hypot(_PROBE, _REBLUR)))
    ridges = once >= np.asarray(cv2.dilate(once, np.ones((3, 3), np.uint8)))
    strong = ridges & (once > max(4.0, float(np.percentile(once, 90))))
    if not strong.any():
        return 0.0
    ratio = once[strong] / np.maximum(twice[strong], 1e-3)
    widths = _REBLUR / np.sqrt(np.maximum(ratio**2 - 1, 1e-3))
    return math.sqrt(max(0.0, float(np.percentile(widths, _PERCENTILE)) ** 2 - _PROBE**2))


def _steepness(grey: npt.NDArray[np.float32], sigma: float) -> npt.NDArray[np.float32]:
    smooth = cv2.GaussianBlur(grey, (0, 0), sigma)
    across, down = (cv2.Sobel(smooth, cv2.CV_32F, *axes, scale=0.25) for axes in ((1, 0), (0, 1)))
    return np.asarray(cv2.magnitude(across, down), np.float32)


def _sharpen(image: Pixels, sigma: float) -> Pixels:
    height, width = image.shape[:2]
    even = np.asarray(cv2.copyMakeBorder(image, 0, height % 2, 0, width % 2, cv2.BORDER_REFLECT), np.float32)
    # Frequencies of a cosine transform, which continues by reflection, without a step at the border.
    down, across = (np.arange(side) * np.pi / side for side in even.shape[:2])
    response = np.exp(-0.5 * sigma**2 * (down[:, None] ** 2 + across**2))
    steepness = 4 - 2 * np.cos(down[:, None]) - 2 * np.cos(across)
    gain = (response / (response**2 + _SMOOTH * max(1.0, _noise(image)) ** 2 * steepness)).astype(np.float32)
    planes = [np.asarray(cv2.idct(cv2.dct(plane) * gain)) for plane in cv2.split(even)]
    window = np.ones((2 * math.ceil(2 * sigma) + 1,) * 2, np.uint8)
    low, high = cv2.erode(image, window), cv2.dilate(image, window)
    return np.clip(np.dstack(planes)[:height, :width].round(), low, high).astype(np.uint8)


def _noise(image: Pixels) -> float:
    """Returns the noise's standard deviation in levels of 255 (Immerkaer, 1996, with a median, which ignores edges)."""
    pattern = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.float32)
    return float(np.median(np.abs(cv2.filter2D(grey, -1, pattern)))) / 0.6745 / 6


_RADII: Final = (3, 12)
"""Smallest and largest radius, in pixels, that a pixel's colour is taken from; between them a share of the depth."""
_RADIUS_FRACTION: Final = 0.2
_MAX_PIXELS: Final = 60_000
"""Pixels filled at most; a larger hole is filled in a smaller image, as the method visits pixels one by one."""
_REACH: Final = 16
"""Pixels around the hole that are used, in the image that is filled."""


class Telea:
    """Implements Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Ignores the spec, as there are no weights."""

    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        """Changes pixels in the mask only; none without a mask, or with one of everything."""
        if mask is None or not (mask >= 128).any() or (mask >= 128).all():
            return image
        hole = np.where(mask >= 128, 255, 0).astype(np.uint8)
        scale = min(1.0, (_MAX_PIXELS / np.count_nonzero(hole)) ** 0.5)
        rows, columns = _part(hole, round(_REACH / scale))
        result = image.copy()
        part, part_hole = image[rows, columns], hole[rows, columns]
        result[rows, columns] = np.where(part_hole[..., None] > 0, _fill(part, part_hole, scale), part)
        return result


def _fill(image: Pixels, hole: Pixels, scale: float) -> Pixels:
    """Returns an image of equal size that is valid in the hole."""
    height, width = hole.shape
    small_hole, small = hole, image
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        # Any coverage counts as hole, so that colours of the hole don't leak into what stays.
        coverage = np.asarray(cv2.resize(hole.astype(np.float32), size, interpolation=cv2.INTER_AREA))
        small_hole = np.where(coverage > 0, 255, 0).astype(np.uint8)
        small = resize(image, *size)
    depth = float(cv2.distanceTransform(small_hole, cv2.DIST_L2, 3).max())
    radius = min(max(_RADIUS_FRACTION * depth, _RADII[0]), _RADII[1])
    result = cv2.inpaint(np.ascontiguousarray(small), small_hole, radius, cv2.INPAINT_TELEA)
    return resize(np.asarray(result, np.uint8), width, height)


def _part(hole: Pixels, reach: int) -> tuple[slice, slice]:
    """Returns the hole with `reach` pixels around it."""
    left, top, width, height = cv2.boundingRect(hole)
    return slice(max(0, top - reach), top + height + reach), slice(max(0, left - reach), left + width + reach)
