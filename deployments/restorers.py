"""Restorers: image to image in one forward, without prompt or steps.

A classic algorithm, a network in ONNX or in torch: each is a class in a file of its own, made from the model's spec,
and a line in `contract.model.RESTORERS`.
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
        """(H, W, 3) RGB, and (H, W) that is 255 where it is to be painted anew and else 0, to (H, W, 3) RGB.

        Restorers that repair a whole image get no mask. Raises JobError where a job can't be done.
        """
        ...


def load_restorer(spec: ModelSpec) -> Restorer:
    """The restorer that `spec.backend` names. May take long to load. Raises CheckpointError."""
    restorer: Restorer = pkgutil.resolve_name(RESTORERS[spec.backend])(spec)
    return restorer


_PROBE: Final = 0.6
_REBLUR: Final = 1.0
"""Sigmas, in pixels: of what calms noise before gradients are taken, and of the second blur."""
_SHARP: Final = 0.78
"""Edges of a sharp image are found to be this wide at most: pixels have a width themselves."""
_PERCENTILE: Final = 30
"""Of the widths of all strong edges: most things have soft edges, too, but none is sharper than the blur."""
_SMOOTH: Final = 0.008
"""How much steepness weighs against the image that came, for noise of one level in 255."""


class Deconvolution:
    """Implements restorers.restorer.Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Of the spec threads alone matter: there are no weights."""
        cv2.setNumThreads(spec.threads or -1)

    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        """An image that is sharp already comes back as it is."""
        sigma = edge_width(image)
        return image if sigma <= _SHARP else _sharpen(image, sigma)


def edge_width(image: Pixels) -> float:
    """Sigma, in pixels, of a Gaussian that would make the sharper ones of the strong edges; 0 where there are none."""
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
    calm = cv2.GaussianBlur(grey, (0, 0), sigma)
    across, down = (cv2.Sobel(calm, cv2.CV_32F, *axes, scale=0.25) for axes in ((1, 0), (0, 1)))
    return np.asarray(cv2.magnitude(across, down), np.float32)


def _sharpen(image: Pixels, sigma: float) -> Pixels:
    height, width = image.shape[:2]
    even = np.asarray(cv2.copyMakeBorder(image, 0, height % 2, 0, width % 2, cv2.BORDER_REFLECT), np.float32)
    # Waves of a cosine transform, which goes on reflected: no step at the rim.
    down, across = (np.arange(side) * np.pi / side for side in even.shape[:2])
    response = np.exp(-0.5 * sigma**2 * (down[:, None] ** 2 + across**2))
    steepness = 4 - 2 * np.cos(down[:, None]) - 2 * np.cos(across)
    gain = (response / (response**2 + _SMOOTH * max(1.0, _noise(image)) ** 2 * steepness)).astype(np.float32)
    planes = [np.asarray(cv2.idct(cv2.dct(plane) * gain)) for plane in cv2.split(even)]
    around = np.ones((2 * math.ceil(2 * sigma) + 1,) * 2, np.uint8)
    least, most = cv2.erode(image, around), cv2.dilate(image, around)
    return np.clip(np.dstack(planes)[:height, :width].round(), least, most).astype(np.uint8)


def _noise(image: Pixels) -> float:
    """Its standard deviation in levels of 255 (Immerkaer, 1996, with a median, which edges don't move)."""
    pattern = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.float32)
    return float(np.median(np.abs(cv2.filter2D(grey, -1, pattern)))) / 0.6745 / 6


_RADII: Final = (3, 12)
"""How far around a pixel its colour is taken from: a share of the hole's depth within these limits, in pixels."""
_RADIUS_FRACTION: Final = 0.2
_MOST: Final = 60_000
"""Pixels that are filled; a hole of more is filled in a smaller image. The method visits them one by one."""
_REACH: Final = 16
"""Pixels around the hole that are looked at, in the image that is filled."""


class Telea:
    """Implements restorers.restorer.Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Takes nothing from the spec: there are no weights."""

    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        """Pixels outside the mask stay as they are. Without a mask, or with one of everything, all do."""
        if mask is None or not (mask >= 128).any() or (mask >= 128).all():
            return image
        hole = np.where(mask >= 128, 255, 0).astype(np.uint8)
        scale = min(1.0, (_MOST / np.count_nonzero(hole)) ** 0.5)
        rows, columns = _part(hole, round(_REACH / scale))
        result = image.copy()
        part, part_hole = image[rows, columns], hole[rows, columns]
        result[rows, columns] = np.where(part_hole[..., None] > 0, _fill(part, part_hole, scale), part)
        return result


def _fill(image: Pixels, hole: Pixels, scale: float) -> Pixels:
    """Of the image's size; only what is in the hole is of use."""
    height, width = hole.shape
    small_hole, small = hole, image
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        # Colours of what is to vanish must not get into what stays, so a pixel with any of it is in the hole.
        coverage = np.asarray(cv2.resize(hole.astype(np.float32), size, interpolation=cv2.INTER_AREA))
        small_hole = np.where(coverage > 0, 255, 0).astype(np.uint8)
        small = resize(image, *size)
    depth = float(cv2.distanceTransform(small_hole, cv2.DIST_L2, 3).max())
    radius = min(max(_RADIUS_FRACTION * depth, _RADII[0]), _RADII[1])
    result = cv2.inpaint(np.ascontiguousarray(small), small_hole, radius, cv2.INPAINT_TELEA)
    return resize(np.asarray(result, np.uint8), width, height)


def _part(hole: Pixels, reach: int) -> tuple[slice, slice]:
    """The hole and so much around it."""
    left, top, width, height = cv2.boundingRect(hole)
    return slice(max(0, top - reach), top + height + reach), slice(max(0, left - reach), left + width + reach)
