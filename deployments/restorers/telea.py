"""Fills holes from their rim inwards, without weights: Telea, "An image inpainting technique based on the fast marching
method" (2004), as OpenCV has it.

Good for scratches, wires, letters and small things on smooth ground. It continues colours and no textures, so the
middle of a large hole comes out blurred.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from deployments.contract.model import ModelSpec
from deployments.pictures.pixels import Pixels, resize

_RADII: Final = (3, 12)
"""How far around a pixel its colour is taken from: a share of the hole's depth within these limits, in pixels."""
_SHARE: Final = 0.2
_MOST: Final = 60_000
"""Pixels that are filled; a hole of more is filled in a smaller picture. The method visits them one by one."""
_REACH: Final = 16
"""Pixels around the hole that are looked at, in the picture that is filled."""


class Telea:
    """Implements restorers.restorer.Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Takes nothing from the spec: there are no weights."""

    def restore(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        """Pixels outside the mask stay as they are. Without a mask, or with one of everything, all do."""
        if mask is None or not (mask >= 128).any() or (mask >= 128).all():
            return picture
        hole = np.where(mask >= 128, 255, 0).astype(np.uint8)
        scale = min(1.0, (_MOST / np.count_nonzero(hole)) ** 0.5)
        rows, columns = _part(hole, round(_REACH / scale))
        result = picture.copy()
        part, part_hole = picture[rows, columns], hole[rows, columns]
        result[rows, columns] = np.where(part_hole[..., None] > 0, _filled(part, part_hole, scale), part)
        return result


def _filled(picture: Pixels, hole: Pixels, scale: float) -> Pixels:
    """Of the picture's size; only what is in the hole is of use."""
    height, width = hole.shape
    small_hole, small = hole, picture
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        # Colours of what is to vanish must not get into what stays, so a pixel with any of it is in the hole.
        share = np.asarray(cv2.resize(hole.astype(np.float32), size, interpolation=cv2.INTER_AREA))
        small_hole = np.where(share > 0, 255, 0).astype(np.uint8)
        small = resize(picture, *size)
    depth = float(cv2.distanceTransform(small_hole, cv2.DIST_L2, 3).max())
    radius = min(max(_SHARE * depth, _RADII[0]), _RADII[1])
    filled = cv2.inpaint(np.ascontiguousarray(small), small_hole, radius, cv2.INPAINT_TELEA)
    return resize(np.asarray(filled, np.uint8), width, height)


def _part(hole: Pixels, reach: int) -> tuple[slice, slice]:
    """The hole and so much around it."""
    left, top, width, height = cv2.boundingRect(hole)
    return slice(max(0, top - reach), top + height + reach), slice(max(0, left - reach), left + width + reach)
