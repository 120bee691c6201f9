"""From the size a picture was rendered at to the size a client asked for.

Interpolation makes edges as wide as the factor it enlarges by. That is right for photographs; drawings look out of
focus. `sharp` keeps edges a pixel or two wide at any factor, and smooth areas smooth: edges are made mixtures of two
colours first (`two_tones`), and the picture is enlarged in steps of at most 2, after each of which is steepened what
became wide.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from deployments.contract.model import Enlarge
from deployments.pictures.pixels import Pixels, resize
from deployments.pictures.two_tones import two_toned

_WINDOW = np.ones((5, 5), np.uint8)
"""Where a pixel looks for the two colours of its edge: as far as an edge reaches that was enlarged once."""
_NEIGHBOURS = np.ones((3, 3), np.uint8)
_DECODED_GAIN, _ENLARGED_GAIN = 1.5, 2.0
"""How much steeper edges get: those of decoders are a little soft, and enlarging by 2 makes edges twice as wide.

A first gain of more would leave stairs, as edges narrower than a pixel can't say where between two pixels they are.
"""
_GRADIENT = 24
"""Levels of 255. Differences up to this within a window are shading, not edges."""


def fitted(pixels: Pixels, width: int, height: int, enlarge: Enlarge) -> Pixels:
    """Exactly `width` x `height`; the same array when it has that size already. Never sharpened when not enlarged."""
    rows, columns = pixels.shape[:2]
    grows = width > columns or height > rows
    return sharp(pixels, width, height) if enlarge == "sharp" and grows else resize(pixels, width, height)


def sharp(pixels: Pixels, width: int, height: int) -> Pixels:
    """`pixels` at `width` x `height`, its edges crisp. Sides that are to be smaller are shrunk first."""
    rows, columns = min(pixels.shape[0], height), min(pixels.shape[1], width)
    pixels = _steepened(two_toned(resize(pixels, columns, rows)), _DECODED_GAIN)
    steps = math.ceil(math.log2(max(width / columns, height / rows)))
    for step in range(1, steps + 1):
        share = step / steps
        size = round(columns * (width / columns) ** share), round(rows * (height / rows) ** share)
        pixels = _steepened(_enlarged(pixels, size), _ENLARGED_GAIN)
    return pixels


def _enlarged(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """To `size` as (width, height), cubic, but never beyond the colours around: steepened, overshoots become rims."""
    low, high = (
        cv2.resize(extreme(pixels, _NEIGHBOURS), size, interpolation=cv2.INTER_LINEAR)
        for extreme in (cv2.erode, cv2.dilate)
    )
    return _clipped(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC), low, high)


def _steepened(pixels: Pixels, gain: float) -> Pixels:
    """Moves every channel away from the middle between its extremes in the window, and not beyond these.

    What differs by no more than _GRADIENT stays; above, the move is limited by how much more it is, so that there is
    no seam between the two.
    """
    low, high = cv2.erode(pixels, _WINDOW), cv2.dilate(pixels, _WINDOW)
    middle = cv2.addWeighted(low, 0.5, high, 0.5, 0)
    limit = cv2.addWeighted(high, 1, low, -1, -_GRADIENT)  # saturates at 0
    steep = cv2.addWeighted(pixels, gain, middle, 1 - gain, 0)
    return _clipped(steep, cv2.max(low, cv2.subtract(pixels, limit)), cv2.min(high, cv2.add(pixels, limit)))


def _clipped(pixels: cv2.typing.MatLike, low: cv2.typing.MatLike, high: cv2.typing.MatLike) -> Pixels:
    return np.asarray(cv2.min(cv2.max(pixels, low), high), dtype=np.uint8)
