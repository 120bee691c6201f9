"""Small pictures in base64, as requests carry them, and what comes back."""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import Final

from PIL import Image, ImageDraw
from support.pictures import encoded, picture, sent

NO_PICTURE: Final = "%%% no picture %%%"


@cache
def photo(width: int = 96, height: int = 64) -> str:
    """An orange spot on teal."""
    image = Image.new("RGB", (width, height), "teal")
    ImageDraw.Draw(image).ellipse((width // 4, height // 4, width // 2, height // 2), fill="orange")
    return sent(image)


@cache
def mask(width: int = 96, height: int = 64) -> str:
    """Black, with a white box in the middle."""
    image = Image.new("L", (width, height))
    image.paste(255, (width // 4, height // 4, width // 2, height // 2))
    return sent(image)


@cache
def cut_out() -> str:
    """A picture whose alpha channel marks a box."""
    image = Image.new("RGBA", (96, 64), (0, 128, 128, 255))
    image.paste((0, 0, 0, 0), (24, 16, 48, 32))
    return sent(image)


@cache
def plain(width: int, height: int) -> str:
    """Of one bit a pixel, so that large ones are small files."""
    return encoded(picture(width, height, mode="1"))


def turned() -> str:
    """96 x 64 pixels that EXIF turns to 64 x 96."""
    return encoded(picture(96, 64, "JPEG", orientation=6))


def truncated() -> str:
    """The first half of a picture."""
    file = base64.b64decode(photo())
    return encoded(file[: len(file) // 2])


def opened(file: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(file))
    image.load()
    return image


NAMED: Final = {
    "photo": photo(),
    "mask": mask(),
    "small_mask": mask(64, 64),
    "large": plain(2100, 2100),
    "long": "x" * 257,
    "url": "x" * 2083,
}
"""Values in files of sentences, by the names that they have there after a dollar."""
