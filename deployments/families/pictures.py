"""Pictures on their way into a model and out of it."""

from __future__ import annotations

import io
import math
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


def shrink(picture: Image.Image, max_pixels: int | None) -> Image.Image:
    """The picture itself, or a smaller one in the same ratio of at most about `max_pixels`."""
    width, height = picture.size
    if max_pixels is None or width * height <= max_pixels:
        return picture
    scale = math.sqrt(max_pixels / (width * height))
    return picture.resize((max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.LANCZOS)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Exactly `width` x `height`; the same array when it has that size already."""
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LANCZOS4), dtype=np.uint8)
