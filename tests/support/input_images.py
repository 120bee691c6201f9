"""Pictures as the service reads them from requests."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from serve_app.inputs.images import InputPicture, read_image
from serve_app.schemas.fields import Picture
from support.pictures import file_of


def picture(size: tuple[int, int] = (96, 64), mode: str = "RGB", colour: Any = 0, kind: str = "PNG") -> InputPicture:
    return as_input(Image.new(mode, size, colour), kind)


def as_input(image: Image.Image, kind: str = "PNG") -> InputPicture:
    return read_image(file_of(image, kind))


def stored_as(data: bytes) -> bytes:
    """What the service keeps of a file that was sent."""
    return read_image(data).data


def pixels(image: InputPicture) -> np.ndarray:
    with Image.open(io.BytesIO(image.data)) as opened:
        return np.asarray(opened)


def sizes(pictures: list[Picture]) -> list[tuple[int, int]]:
    """As the way of a request hands them to `plan`."""
    return [(image.width, image.height) for _, image in pictures]
