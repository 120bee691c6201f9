"""Pictures that the service itself makes of those that were sent, encoded like them."""

from __future__ import annotations

import io
from typing import Final, Literal

from PIL import Image

from serve_app.media.inputs import InputPicture

JPEG_QUALITY: Final = 95


def stored(
    image: Image.Image, extension: Literal["png", "jpeg"] = "png", *, colour_profile: bytes | None = None
) -> InputPicture:
    """`image` is 8-bit grey, RGB or, for PNG only, RGBA. Fast rather than small.

    The profile that the image may still carry is left out, as it was made for the picture it comes from.
    """
    buffer = io.BytesIO()
    if extension == "jpeg":
        image.save(buffer, "JPEG", quality=JPEG_QUALITY, icc_profile=colour_profile)
    else:
        image.save(buffer, "PNG", compress_level=1, icc_profile=colour_profile)
    return InputPicture(
        data=buffer.getvalue(),
        content_type=f"image/{extension}",
        extension=extension,
        width=image.width,
        height=image.height,
        has_alpha=image.mode == "RGBA",
    )
