"""Pictures to send along: made, not anybody's."""

from __future__ import annotations

import base64
import io
import random
from functools import lru_cache

from PIL import Image, ImageDraw

from serve_app.load.shape import Size

_VARIANTS = 8
"""Of one size. Servers that keep what they have seen get different ones; a generator's memory has an end."""


def photo(size: Size, seed: int) -> str:
    """Base64 of a JPEG: coloured spots over a coarse noise, about as large as a photograph of that size."""
    return _photo(size, seed % _VARIANTS)


@lru_cache(maxsize=256)
def _photo(size: Size, variant: int) -> str:
    chance = random.Random(variant)
    grain = Image.frombytes("RGB", (64, 64), chance.randbytes(64 * 64 * 3))
    picture = grain.resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for _ in range(6):
        left, top = chance.randrange(size.width), chance.randrange(size.height)
        spot = (left, top, left + size.width // 4, top + size.height // 4)
        draw.ellipse(spot, fill=tuple(chance.randbytes(3)))
    return _encoded(picture, "JPEG")


@lru_cache(maxsize=64)
def mask(size: Size) -> str:
    """Base64 of a PNG: black, with a white box in the middle."""
    picture = Image.new("L", size)
    picture.paste(255, (size.width // 4, size.height // 4, max(1, size.width * 3 // 4), max(1, size.height * 3 // 4)))
    return _encoded(picture, "PNG")


def _encoded(picture: Image.Image, form: str) -> str:
    file = io.BytesIO()
    picture.save(file, form)
    return base64.b64encode(file.getvalue()).decode()
