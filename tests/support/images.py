"""Image files, and their base64 for requests."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

ORIENTATION_TAG = 0x0112


def image_file(
    width: int = 96,
    height: int = 64,
    form: str = "PNG",
    mode: str = "RGB",
    orientation: int | None = None,
    *,
    white: bool = False,
) -> bytes:
    """Returns a black or white image file; even a large image is a small file."""
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION_TAG] = orientation
    buffer = io.BytesIO()
    image = Image.new("L", (width, height), 255).convert(mode) if white else Image.new(mode, (width, height))
    image.save(buffer, form, exif=exif)
    return buffer.getvalue()


def encode_image(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image_base64(image: Image.Image, form: str = "PNG") -> str:
    """Returns the image's file in base64, as a request carries it."""
    return to_base64(encode_image(image, form))
