"""Pictures that were sent larger than a model wants them."""

from __future__ import annotations

import io

from PIL import Image

from serve_app.media.geometry import scale_to
from serve_app.media.inputs import InputPicture
from serve_app.media.storing import stored


def scaled(image: InputPicture, area: int) -> InputPicture:
    """The picture at about `area` pixels in the same ratio: a JPEG as JPEG, any other as PNG."""
    with Image.open(io.BytesIO(image.data)) as picture:
        # Pillow's Lanczos averages where it shrinks, and weighs colours by their opacity.
        smaller = picture.resize(scale_to(image.width, image.height, area), Image.Resampling.LANCZOS)
        profile = picture.info.get("icc_profile")
    return stored(smaller, "jpeg" if image.extension == "jpeg" else "png", colour_profile=profile)
