"""Masks for repainting: 8-bit grey, white where the picture is painted anew, black where it stays."""

from __future__ import annotations

import io

from PIL import Image, ImageOps

from serve_app.media.inputs import InputImage


def grey_mask(image: InputImage) -> InputImage:
    """A picture that was sent as a mask. What is transparent in it counts as black."""
    with Image.open(io.BytesIO(image.data)) as picture:
        if picture.mode == "RGBA":
            black = Image.new("RGBA", picture.size, "black")
            return _stored(Image.alpha_composite(black, picture).convert("L"))
        return _stored(picture.convert("L"))


def alpha_mask(image: InputImage) -> InputImage | None:
    """The mask in a picture's alpha channel, by which what is transparent is painted anew; None if nothing is."""
    if not image.has_alpha:
        return None
    with Image.open(io.BytesIO(image.data)) as picture:
        mask = ImageOps.invert(picture.getchannel("A"))
    return _stored(mask) if mask.getbbox() else None


def _stored(mask: Image.Image) -> InputImage:
    buffer = io.BytesIO()
    mask.save(buffer, "PNG", compress_level=1)
    return InputImage(buffer.getvalue(), "image/png", "png", mask.width, mask.height, has_alpha=False)
