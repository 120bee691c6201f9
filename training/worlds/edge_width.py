"""How wide an edge is, by its slope: both of what it lies between are known."""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

WIDEST: Final = 60.0
"""Pixels; an edge that can't be found is as wide."""
_RISE: Final = 2.563 / math.sqrt(2 * math.pi)
"""From 10 % to 90 % of a soft edge, times its steepest slope."""


def edge_width(levels: NDArray[np.float32], outline: NDArray[np.bool_], contrast: float, reach: int) -> float:
    """Pixels from 10 % to 90 % of the way, the median along `outline` (H, W).

    `levels`, (H, W) or (H, W, 3), are `contrast` apart from one side to the other. An edge is looked for in squares of
    `reach` pixels.
    """
    if not outline.any():
        return WIDEST
    slopes = [cv2.Scharr(levels, cv2.CV_32F, *axis, scale=1 / 32) for axis in ((1, 0), (0, 1))]
    slope = np.sqrt(np.square(slopes).reshape(2, *outline.shape, -1).sum(axis=(0, 3)))
    steepest = cv2.dilate(slope, np.ones((reach, reach), np.uint8))
    return min(WIDEST, _RISE * contrast / max(float(np.median(steepest[outline])), 1e-6))
