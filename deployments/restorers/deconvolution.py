"""Takes blur out of pictures that are out of focus or were scaled up, without weights.

Blurring a picture once more by a known width weakens the gradient at an edge the more, the sharper the edge was (Zhuo
and Sim, "Defocus map estimation from a single image", 2011). That says how wide a Gaussian blurred it, which is divided
out of its spectrum, the less the more noise there is. What would overshoot the colours around is cut, so edges get no
halo. One width holds for the whole picture; motion blur, and a background alone out of focus, it can't undo.
"""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.contract.model import ModelSpec
from deployments.pictures.pixels import Pixels

_PROBE: Final = 0.6
_REBLUR: Final = 1.0
"""Sigmas, in pixels: of what calms noise before gradients are taken, and of the second blur."""
_SHARP: Final = 0.78
"""Edges of a sharp picture are found to be this wide at most: pixels have a width themselves."""
_PERCENTILE: Final = 30
"""Of the widths of all strong edges: most things have soft edges, too, but none is sharper than the blur."""
_SMOOTH: Final = 0.008
"""How much steepness weighs against the picture that came, for noise of one level in 255."""


class Deconvolution:
    """Implements restorers.restorer.Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Of the spec threads alone matter: there are no weights."""
        cv2.setNumThreads(spec.threads or -1)

    def restore(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        """A picture that is sharp already comes back as it is."""
        sigma = edge_width(picture)
        return picture if sigma <= _SHARP else _sharpened(picture, sigma)


def edge_width(picture: Pixels) -> float:
    """Sigma, in pixels, of a Gaussian that would make the sharper ones of the strong edges; 0 where there are none."""
    grey = np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.float32)
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


def _sharpened(picture: Pixels, sigma: float) -> Pixels:
    height, width = picture.shape[:2]
    even = np.asarray(cv2.copyMakeBorder(picture, 0, height % 2, 0, width % 2, cv2.BORDER_REFLECT), np.float32)
    # Waves of a cosine transform, which goes on reflected: no step at the rim.
    down, across = (np.arange(side) * np.pi / side for side in even.shape[:2])
    response = np.exp(-0.5 * sigma**2 * (down[:, None] ** 2 + across**2))
    steepness = 4 - 2 * np.cos(down[:, None]) - 2 * np.cos(across)
    gain = (response / (response**2 + _SMOOTH * max(1.0, _noise(picture)) ** 2 * steepness)).astype(np.float32)
    planes = [np.asarray(cv2.idct(cv2.dct(plane) * gain)) for plane in cv2.split(even)]
    around = np.ones((2 * math.ceil(2 * sigma) + 1,) * 2, np.uint8)
    least, most = cv2.erode(picture, around), cv2.dilate(picture, around)
    return np.clip(np.dstack(planes)[:height, :width].round(), least, most).astype(np.uint8)


def _noise(picture: Pixels) -> float:
    """Its standard deviation in levels of 255 (Immerkaer, 1996, with a median, which edges don't move)."""
    pattern = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    grey = np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.float32)
    return float(np.median(np.abs(cv2.filter2D(grey, -1, pattern)))) / 0.6745 / 6
