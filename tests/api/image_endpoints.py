"""Names, minimal bodies and image fields of the image endpoints before generation 3."""

from __future__ import annotations

from typing import Any

from PIL import Image, ImageOps
from support.images import image_base64, image_file, to_base64

PHOTO = to_base64(image_file(96, 64))
MASK = image_base64(ImageOps.expand(Image.new("L", (48, 32), 255), (24, 16)))

MINIMAL: dict[str, dict[str, Any]] = {
    "gen-2-max": {"prompt": "a cat"},
    "gen-2-pro-preview": {"prompt": "a cat"},
    "gen-2-pro": {"prompt": "a cat"},
    "gen-kontext-pro": {"prompt": "a cat"},
    "gen-pro": {},
    "gen-pro-1.0-fill": {"image": PHOTO, "mask": MASK},
    "gen-pro-1.0-canny": {"prompt": "a cat", "control_image": PHOTO},
}
ENDPOINTS = list(MINIMAL)
GEN_2 = ["gen-2-max", "gen-2-pro-preview", "gen-2-pro"]

IMAGE_FIELDS: list[tuple[str, str]] = [
    *(("gen-2-max", f"input_image{suffix}") for suffix in ("", *(f"_{n}" for n in range(2, 9)))),
    ("gen-2-pro-preview", "input_image"),
    ("gen-2-pro", "input_image_8"),
    *(("gen-kontext-pro", f"input_image{suffix}") for suffix in ("", "_2", "_3", "_4")),
    ("gen-pro", "image_prompt"),
    ("gen-pro-1.0-fill", "image"),
    ("gen-pro-1.0-fill", "mask"),
    ("gen-pro-1.0-canny", "control_image"),
    ("gen-pro-1.0-canny", "preprocessed_image"),
]
"""Endpoint and field of each image; of endpoints that share a request, one is complete."""
