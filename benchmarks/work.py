"""Whether two sides of a comparison did the same work: the images that they made."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np
from PIL import Image

ROUNDED: Final = 8
"""Levels of 255 that a JPEG may be apart where sums were rounded otherwise, as with another number of threads: three
were measured. Another size, seed or number of steps makes tens along edges."""


def unlike(ours: Sequence[bytes], theirs: Sequence[bytes], levels: int = 0) -> list[str]:
    """What differs between files of the same requests, in the same order, by more than so many levels of 255; empty if
    they are pixel by pixel the same.

    Drawn one at a time they are, if size, steps, precision and seed were: nothing less proves it. One rendered smaller
    and enlarged differs along edges alone, and by little on average.
    """
    if len(ours) != len(theirs):
        return [f"{len(ours)} and {len(theirs)} images"]
    differences = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if (off := _largest_difference(one, other)) is None:
            differences.append(f"image {number} is missing, or of another size")
        elif off > levels:
            differences.append(f"image {number}: up to {off} levels of 255 apart")
    return differences


def _largest_difference(one: bytes, other: bytes) -> int | None:
    """Of two files' pixels, of 255. None where they are not comparable: one is missing, or of another size."""
    if not one or not other:
        return None
    pixels, others = (np.asarray(Image.open(io.BytesIO(file)), int) for file in (one, other))
    return int(np.abs(pixels - others).max()) if pixels.shape == others.shape else None
