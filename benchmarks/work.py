"""Check that two sides of a comparison did the same work: it compares the images they made."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np
from PIL import Image

ROUNDING_LEVELS: Final = 8
"""Levels of 255 by which JPEGs may differ through rounding, as with another number of threads; three were measured.
Another size, seed or number of steps makes tens along edges."""


def differing_images(ours: Sequence[bytes], theirs: Sequence[bytes], levels: int = 0) -> list[str]:
    """Returns a line for each image that differs by more than `levels` of 255 at any pixel.

    Both sides list the files of the same requests in the same order. The maximum counts, not the mean: an image that
    was rendered smaller and enlarged differs along edges only, and by little on average.
    """
    if len(ours) != len(theirs):
        return [f"{len(ours)} and {len(theirs)} images"]
    differences = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if (difference := _largest_difference(one, other)) is None:
            differences.append(f"image {number} is missing, or of another size")
        elif difference > levels:
            differences.append(f"image {number}: up to {difference} levels of 255 apart")
    return differences


def _largest_difference(one: bytes, other: bytes) -> int | None:
    """Returns the largest difference of two pixels in levels of 255; None if a file is missing or of another size."""
    if not one or not other:
        return None
    pixels, others = (np.asarray(Image.open(io.BytesIO(file)), int) for file in (one, other))
    return int(np.abs(pixels - others).max()) if pixels.shape == others.shape else None
