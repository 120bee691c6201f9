"""Masks for repainting: 8-bit grey, white where the picture is painted anew, black where it stays."""

from __future__ import annotations

import io
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from serve_app.media.decoding import InputPicture, written

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
