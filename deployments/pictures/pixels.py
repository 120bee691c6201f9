"""Pictures on their way into a model and out of it."""

from __future__ import annotations

import io
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from deployments.engine.backend import JobError

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""(height, width, 3), RGB, 0 to 255."""


def open_picture(data: bytes) -> Image.Image:
    """Decodes to RGB, upright, transparent parts over white.

    Formats and sizes were checked when the picture came in; JobError when it can't be read all the same.
    """
    try:
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            white = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(white, picture)
        return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise JobError("an input picture cannot be read") from error


def stretch(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """To `size` as (height, width); the picture itself when it has that size already."""
    wanted = (size[1], size[0])
    # Pillow's Lanczos averages where it shrinks: its support grows with the factor.
    return picture if picture.size == wanted else picture.resize(wanted, Image.Resampling.LANCZOS)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Exactly `width` x `height`; the same array when it has that size already.

    OpenCV's Lanczos skips pixels where it shrinks, so sides that are to be smaller are averaged first.
    """
    rows, columns = pixels.shape[:2]
    pixels = _resized(pixels, min(width, columns), min(height, rows), cv2.INTER_AREA)
    return _resized(pixels, width, height, cv2.INTER_LANCZOS4)


def _resized(pixels: Pixels, width: int, height: int, interpolation: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=interpolation), dtype=np.uint8)
