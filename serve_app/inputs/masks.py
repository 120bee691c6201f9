"""Inpainting masks: 8-bit grey, white where the image is painted anew; and canvases for outpainting."""

from __future__ import annotations

import io
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from serve_app.inputs.geometry import Size, scale_to
from serve_app.inputs.images import InputPicture, written

Area: TypeAlias = npt.NDArray[np.bool_]
"""(height, width), true where the picture is painted anew: a mask without shades."""

WHITE_FROM: Final = 128
"""The darkest of 0 to 255 that counts as white where a mask must be one or the other."""


def grey_mask(image: InputPicture) -> InputPicture:
    """A picture that was sent as a mask. What is transparent in it counts as black."""
    return written(_grey(image))


def alpha_mask(image: InputPicture) -> InputPicture | None:
    """The mask in a picture's alpha channel, by which what is transparent is painted anew; None if nothing is."""
    if not image.has_alpha:
        return None
    with Image.open(io.BytesIO(image.data)) as picture:
        mask = ImageOps.invert(picture.getchannel("A"))
    return written(mask) if mask.getbbox() else None


def white_area(image: InputPicture) -> Area:
    """Where a picture that was sent as a mask is white rather than black. What is transparent in it counts as black."""
    return np.asarray(_grey(image)) >= WHITE_FROM


def grown(area: Area, pixels: int) -> Area:
    """The area and all within `pixels`, 0 or more, around it; diagonally too, as the shape that is added is round."""
    if pixels == 0:
        return area
    side = 2 * pixels + 1
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    return cv2.dilate(area.view(np.uint8), disc).view(np.bool_)


def mask_of(area: Area) -> InputPicture:
    return written(Image.fromarray(area.view(np.uint8) * np.uint8(255)))


def _grey(image: InputPicture) -> Image.Image:
    with Image.open(io.BytesIO(image.data)) as picture:
        if picture.mode == "RGBA":
            black = Image.new("RGBA", picture.size, "black")
            return Image.alpha_composite(black, picture).convert("L")
        return picture.convert("L")


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
