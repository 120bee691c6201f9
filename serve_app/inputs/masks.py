"""Inpainting masks (8-bit grey, white is painted) and canvases for outpainting."""

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
"""Mask without shades: (height, width), true where the image is painted."""

WHITE_FROM: Final = 128
"""Darkest level, 0 to 255, that an area counts as white."""


def grey_mask(image: InputImage) -> InputImage:
    """Converts an image to a mask. Transparent pixels count as black."""
    return encode_png(_grey(image))


def alpha_mask(image: InputImage) -> InputImage | None:
    """Returns the mask that paints the transparent pixels of an image; None if it has none."""
    if not image.has_alpha:
        return None
    with Image.open(io.BytesIO(image.data)) as source:
        mask = ImageOps.invert(source.getchannel("A"))
    return encode_png(mask) if mask.getbbox() else None


def white_area(image: InputImage) -> Area:
    """Returns the white pixels of an image that was sent as a mask. Transparent pixels count as black."""
    return np.asarray(_grey(image)) >= WHITE_FROM


def grow(area: Area, pixels: int) -> Area:
    """Grows the area by a disc with a radius of `pixels`, 0 or more."""
    if pixels == 0:
        return area
    side = 2 * pixels + 1
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    return cv2.dilate(area.view(np.uint8), disc).view(np.bool_)


def mask_from_area(area: Area) -> InputImage:
    return encode_png(Image.fromarray(area.view(np.uint8) * np.uint8(255)))


def _grey(image: InputImage) -> Image.Image:
    with Image.open(io.BytesIO(image.data)) as source:
        return _over(source, "black").convert("L")


def _over(source: Image.Image, background: str) -> Image.Image:
    if source.mode != "RGBA":
        return source
    return Image.alpha_composite(Image.new("RGBA", source.size, background), source)


def place_on_canvas(image: InputImage, canvas: Size, left: int, top: int) -> tuple[InputImage, InputImage]:
    """Returns the canvas as RGB and the mask of all that the image leaves open.

    The image's corner at `left` and `top` may be outside the canvas; the image is cut at the canvas's edges, and some
    of it must be inside. Transparent pixels are shown over white, as models see them. The image's edges are stretched
    over the open area, so that models see colours there that match the image.
    """
    right = min(left + image.width, canvas.width)
    bottom = min(top + image.height, canvas.height)
    with Image.open(io.BytesIO(image.data)) as source:
        inside = source.crop((max(-left, 0), max(-top, 0), right - left, bottom - top))
    left, top = max(left, 0), max(top, 0)
    pixels = cv2.copyMakeBorder(
        np.asarray(_over(inside, "white").convert("RGB")),
        top,
        canvas.height - bottom,
        left,
        canvas.width - right,
        cv2.BORDER_REPLICATE,
    )
    open_area = np.ones((canvas.height, canvas.width), np.bool_)
    open_area[top:bottom, left:right] = False
    return encode_png(Image.fromarray(pixels)), mask_from_area(open_area)


def scale(image: InputImage, area: int) -> InputImage:
    """Scales the image to about `area` pixels in the same ratio."""
    with Image.open(io.BytesIO(image.data)) as source:
        # Pillow's Lanczos averages as it shrinks, and weighs colours by their opacity.
        smaller = source.resize(scale_to(image.width, image.height, area), Image.Resampling.LANCZOS)
    return encode_png(smaller)
