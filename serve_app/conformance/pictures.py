"""Small pictures, as base64."""

from __future__ import annotations

import base64
import io
from functools import cache

from PIL import Image, ImageDraw

from serve_app.conformance.verdicts import Broken

_ORIENTATION = 0x0112
"""The EXIF tag."""


def encoded(picture: Image.Image, form: str = "PNG", **options: object) -> str:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return base64.b64encode(file.getvalue()).decode()


@cache
def photo(width: int = 96, height: int = 64) -> str:
    """An orange spot on teal."""
    picture = Image.new("RGB", (width, height), "teal")
    ImageDraw.Draw(picture).ellipse((width // 4, height // 4, width // 2, height // 2), fill="orange")
    return encoded(picture)


@cache
def turned() -> str:
    """96 x 64 pixels that EXIF turns to 64 x 96."""
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    return encoded(Image.new("RGB", (96, 64), "teal"), "JPEG", exif=exif)


@cache
def mask(width: int = 96, height: int = 64) -> str:
    """Black, with a white box in the middle."""
    picture = Image.new("L", (width, height))
    picture.paste(255, (width // 4, height // 4, width // 2, height // 2))
    return encoded(picture)


@cache
def cut_out() -> str:
    """A picture whose alpha channel marks a box."""
    picture = Image.new("RGBA", (96, 64), (0, 128, 128, 255))
    picture.paste((0, 0, 0, 0), (24, 16, 48, 32))
    return encoded(picture)


@cache
def plain(width: int, height: int) -> str:
    """Of one bit a pixel, so that large ones are small files."""
    return encoded(Image.new("1", (width, height)))


def truncated() -> str:
    """The first half of a picture."""
    file = base64.b64decode(photo())
    return base64.b64encode(file[: len(file) // 2]).decode()


def opened(file: bytes) -> Image.Image:
    """Raises Broken for what is no picture."""
    try:
        picture = Image.open(io.BytesIO(file))
        picture.load()
    except (OSError, ValueError, SyntaxError):
        raise Broken("a picture") from None
    return picture


def size_of(file: bytes) -> tuple[int, int]:
    """Width and height. Raises Broken for what is no picture."""
    return opened(file).size
