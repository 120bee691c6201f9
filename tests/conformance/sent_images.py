"""Small images in base64 for requests."""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import Final

from PIL import Image, ImageDraw
from support.images import image_base64, image_file, to_base64

NO_IMAGE: Final = "%%% no image %%%"


@cache
def photo(width: int = 96, height: int = 64) -> str:
    """Returns an orange spot on teal."""
    image = Image.new("RGB", (width, height), "teal")
    ImageDraw.Draw(image).ellipse((width // 4, height // 4, width // 2, height // 2), fill="orange")
    return image_base64(image)


@cache
def mask(width: int = 96, height: int = 64) -> str:
    """Returns a black mask with a white box in the middle."""
    image = Image.new("L", (width, height))
    image.paste(255, (width // 4, height // 4, width // 2, height // 2))
    return image_base64(image)


@cache
def cut_out() -> str:
    """Returns an image whose alpha channel marks a box."""
    image = Image.new("RGBA", (96, 64), (0, 128, 128, 255))
    image.paste((0, 0, 0, 0), (24, 16, 48, 32))
    return image_base64(image)


@cache
def plain(width: int, height: int) -> str:
    """Returns an image with one bit a pixel, so that large images are small files."""
    return to_base64(image_file(width, height, mode="1"))


def make_rotated() -> str:
    """Returns 96 x 64 pixels that EXIF rotates to 64 x 96."""
    return to_base64(image_file(96, 64, "JPEG", orientation=6))


def make_truncated() -> str:
    """Returns the first half of an image file."""
    file = base64.b64decode(photo())
    return to_base64(file[: len(file) // 2])


def open_image(file: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(file))
    image.load()
    return image


PLACEHOLDERS: Final = {
    "photo": photo(),
    "data_uri": f"data:image/png;base64,{photo()}",
    "mask": mask(),
    "small_mask": mask(64, 64),
    "under_4_mp": plain(2000, 2000),
    "over_4_mp": plain(2100, 2100),
    "longest": "x" * 256,
    "too_long": "x" * 257,
}
"""Values of the names after a dollar in the YAML files."""
