"""Inpainting masks: 8-bit grey, white where the image is painted anew; and canvases for outpainting."""

from __future__ import annotations

import io
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from serve_app.inputs.geometry import Size, scale_to
from serve_app.inputs.images import InputImage, encode_png

Area: TypeAlias = npt.NDArray[np.bool_]
"""(height, width), true where the image is painted anew: a mask without shades."""

WHITE_FROM: Final = 128
"""The darkest of 0 to 255 that counts as white where a mask must be one or the other."""


def grey_mask(image: InputImage) -> InputImage:
    """An image that was sent as a mask. What is transparent in it counts as black."""
    return encode_png(_grey(image))


def alpha_mask(image: InputImage) -> InputImage | None:
    """The mask in an image's alpha channel, by which what is transparent is painted anew; None if nothing is."""
    if not image.has_alpha:
        return None
    with Image.open(io.BytesIO(image.data)) as source:
        mask = ImageOps.invert(source.getchannel("A"))
    return encode_png(mask) if mask.getbbox() else None


def white_area(image: InputImage) -> Area:
    """Where an image that was sent as a mask is white rather than black. What is transparent in it counts as black."""
    return np.asarray(_grey(image)) >= WHITE_FROM


def grow(area: Area, pixels: int) -> Area:
    """The area and all within `pixels`, 0 or more, around it; diagonally too, as the shape that is added is round."""
    if pixels == 0:
        return area
    side = 2 * pixels + 1
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    return cv2.dilate(area.view(np.uint8), disc).view(np.bool_)


def mask_from_area(area: Area) -> InputImage:
    return encode_png(Image.fromarray(area.view(np.uint8) * np.uint8(255)))


def _grey(image: InputImage) -> Image.Image:
    with Image.open(io.BytesIO(image.data)) as source:
        if source.mode == "RGBA":
            black = Image.new("RGBA", source.size, "black")
            return Image.alpha_composite(black, source).convert("L")
        return source.convert("L")


def place_on_canvas(image: InputImage, canvas: Size, left: int, top: int) -> tuple[InputImage, InputImage]:
    """The canvas as RGB, and the mask of what is to be painted on it: all that the image leaves open.

    `left` and `top` say where the image's top left corner lies, which may be outside; some of the image must be
    inside, and what is not is cut off. Transparent parts of it are shown over white, as models see them. Its edges are
    stretched over the rest of the canvas, so that a model that looks there sees colours that go with the image.
    """
    right = min(left + image.width, canvas.width)
    bottom = min(top + image.height, canvas.height)
    with Image.open(io.BytesIO(image.data)) as source:
        inside = source.crop((max(-left, 0), max(-top, 0), right - left, bottom - top))
    left, top = max(left, 0), max(top, 0)
    pixels = cv2.copyMakeBorder(
        np.asarray(_over_white(inside)),
        top,
        canvas.height - bottom,
        left,
        canvas.width - right,
        cv2.BORDER_REPLICATE,
    )
    open_area = np.ones((canvas.height, canvas.width), np.bool_)
    open_area[top:bottom, left:right] = False
    return encode_png(Image.fromarray(pixels)), mask_from_area(open_area)


def _over_white(source: Image.Image) -> Image.Image:
    if source.mode == "RGBA":
        white = Image.new("RGBA", source.size, "white")
        source = Image.alpha_composite(white, source)
    return source.convert("RGB")


def scale(image: InputImage, area: int) -> InputImage:
    """The image at about `area` pixels in the same ratio."""
    with Image.open(io.BytesIO(image.data)) as source:
        # Pillow's Lanczos averages where it shrinks, and weighs colours by their opacity.
        smaller = source.resize(scale_to(image.width, image.height, area), Image.Resampling.LANCZOS)
    return encode_png(smaller)
