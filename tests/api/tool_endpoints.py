"""Names and minimal bodies of the tools, and images whose pixels differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image
from support.images import encode_image, to_base64

ERASE = "gen-tools/erase-v1"
OUTPAINTING = "gen-tools/outpainting-v1"
TRY_ON_1 = "gen-tools/vto-v1"
TRY_ON_2 = "gen-tools/vto-v2"
DEBLUR = "gen-tools/deblur-v1"
TRY_ONS = [TRY_ON_1, TRY_ON_2]


def make_photo(width: int = 96, height: int = 64) -> Image.Image:
    """Returns an image of up to 256 x 256 pixels; no two of a row or a column are equal."""
    down, across = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([across % 256, down % 256, (across + down) % 256], axis=-1).astype(np.uint8))


def make_mask(left: int, top: int, right: int, bottom: int) -> Image.Image:
    """Returns a black image with a white box."""
    image = Image.new("L", (96, 64))
    image.paste("white", (left, top, right, bottom))
    return image


PHOTO_FILE = encode_image(make_photo())
PHOTO = to_base64(PHOTO_FILE)
SPOT_FILE = encode_image(make_mask(40, 24, 56, 40))
SPOT = to_base64(SPOT_FILE)

MINIMAL: dict[str, dict[str, Any]] = {
    ERASE: {"image": PHOTO, "mask": SPOT},
    OUTPAINTING: {"input_image": PHOTO, "width": 128, "height": 96},
    TRY_ON_1: {"person": PHOTO, "garment": PHOTO},
    TRY_ON_2: {"person": PHOTO, "garment": PHOTO},
    DEBLUR: {"image": PHOTO},
}
TOOLS = list(MINIMAL)
