"""Images as the service reads them from a request."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from serve_app.inputs.images import InputImage, read_image
from serve_app.schemas.fields import RequestImage
from support.images import encode_image


def input_image(size: tuple[int, int] = (96, 64), mode: str = "RGB", colour: Any = 0, kind: str = "PNG") -> InputImage:
    return as_input(Image.new(mode, size, colour), kind)


def as_input(image: Image.Image, kind: str = "PNG") -> InputImage:
    return read_image(encode_image(image, kind))


def stored_as(data: bytes) -> bytes:
    """Returns the file that the service stores for a given file."""
    return read_image(data).data


def pixels(image: InputImage) -> np.ndarray:
    with Image.open(io.BytesIO(image.data)) as pil_image:
        return np.asarray(pil_image)


def sizes(images: list[RequestImage]) -> list[tuple[int, int]]:
    """Returns sizes of a request's images, as the resolution of requests takes them."""
    return [(each.image.width, each.image.height) for each in images]
