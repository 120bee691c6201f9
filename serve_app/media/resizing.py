"""Pictures that were sent larger than a model wants them."""

from __future__ import annotations

import io

from PIL import Image

from serve_app.media.decoding import InputPicture, written
from serve_app.media.geometry import scale_to


def scaled(image: InputPicture, area: int) -> InputPicture:
    """The picture at about `area` pixels in the same ratio."""
    with Image.open(io.BytesIO(image.data)) as picture:
        # Pillow's Lanczos averages where it shrinks, and weighs colours by their opacity.
        smaller = picture.resize(scale_to(image.width, image.height, area), Image.Resampling.LANCZOS)
    return written(smaller)
