"""A picture laid on a canvas, of which it leaves a part to be painted."""

from __future__ import annotations

import io

import cv2
import numpy as np
from PIL import Image

from serve_app.media.decoding import InputPicture, written
from serve_app.media.geometry import Size, scale_to
from serve_app.media.masks import mask_of


def laid_out(image: InputPicture, canvas: Size, left: int, top: int) -> tuple[InputPicture, InputPicture]:
    """The canvas as RGB, and the mask of what is to be painted on it: all that the picture leaves open.

    `left` and `top` say where the picture's top left corner lies, which may be outside; some of the picture must be
    inside, and what is not is cut off. Transparent parts of it are shown over white, as models see them. Its edges are
    stretched over the rest of the canvas, so that a model that looks there sees colours that go with the picture.
    """
    right = min(left + image.width, canvas.width)
    bottom = min(top + image.height, canvas.height)
    with Image.open(io.BytesIO(image.data)) as picture:
        inside = picture.crop((max(-left, 0), max(-top, 0), right - left, bottom - top))
    left, top = max(left, 0), max(top, 0)
    pixels = cv2.copyMakeBorder(
        np.asarray(_over_white(inside)),
        top,
        canvas.height - bottom,
        left,
        canvas.width - right,
        cv2.BORDER_REPLICATE,
    )
    unpainted = np.ones((canvas.height, canvas.width), np.bool_)
    unpainted[top:bottom, left:right] = False
    return written(Image.fromarray(pixels)), mask_of(unpainted)


def _over_white(picture: Image.Image) -> Image.Image:
    if picture.mode == "RGBA":
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")


def scaled(image: InputPicture, area: int) -> InputPicture:
    """The picture at about `area` pixels in the same ratio."""
    with Image.open(io.BytesIO(image.data)) as picture:
        # Pillow's Lanczos averages where it shrinks, and weighs colours by their opacity.
        smaller = picture.resize(scale_to(image.width, image.height, area), Image.Resampling.LANCZOS)
    return written(smaller)
