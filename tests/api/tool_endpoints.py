"""The tools, by their names, with the least that each takes, and images whose pixels can be told apart."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image
from support.http_client import Client, problems
from support.http_service import Service
from support.images import encode_image, image_file, to_base64
from support.worker import Worker

ERASE = "gen-tools/erase-v1"
OUTPAINTING = "gen-tools/outpainting-v1"
TRY_ON_1 = "gen-tools/vto-v1"
TRY_ON_2 = "gen-tools/vto-v2"
DEBLUR = "gen-tools/deblur-v1"
TRY_ONS = [TRY_ON_1, TRY_ON_2]


def make_photo(width: int = 96, height: int = 64) -> Image.Image:
    """No two pixels of a row or a column are alike, up to 256 either way."""
    down, across = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([across % 256, down % 256, (across + down) % 256], axis=-1).astype(np.uint8))


def mask(*boxes: tuple[int, int, int, int], size: tuple[int, int] = (96, 64), mode: str = "L") -> Image.Image:
    """Black, but for white boxes: left, top, right, bottom."""
    image = Image.new(mode, size)
    for box in boxes:
        image.paste("white", box)
    return image


PHOTO_FILE = encode_image(make_photo())
PHOTO = to_base64(PHOTO_FILE)
SPOT_FILE = encode_image(mask((40, 24, 56, 40)))
SPOT = to_base64(SPOT_FILE)

MINIMAL: dict[str, dict[str, Any]] = {
    ERASE: {"image": PHOTO, "mask": SPOT},
    OUTPAINTING: {"input_image": PHOTO, "width": 128, "height": 96},
    TRY_ON_1: {"person": PHOTO, "garment": PHOTO},
    TRY_ON_2: {"person": PHOTO, "garment": PHOTO},
    DEBLUR: {"image": PHOTO},
}
TOOLS = list(MINIMAL)

IMAGE_FIELDS: list[tuple[str, str]] = [
    (ERASE, "image"),
    (ERASE, "mask"),
    (OUTPAINTING, "input_image"),
    *((endpoint, field) for endpoint in TRY_ONS for field in ("person", "garment")),
    (DEBLUR, "image"),
]


def stored_file(worker: Worker, key: str) -> bytes:
    return worker.run(worker.objects.get(key))


def get_image(worker: Worker, key: str) -> Image.Image:
    return Image.open(io.BytesIO(stored_file(worker, key)))


def large(width: int, height: int, mode: str = "L") -> str:
    return to_base64(image_file(width, height, mode=mode))


def pixels(image: Image.Image) -> Any:
    return np.asarray(image)


def get_problem(client: Client, service: Service, tool: str, **body: Any) -> tuple[str, str, str]:
    """Field, kind and message of the one problem of a request that leaves nothing behind."""
    with service.assert_unchanged():
        response = client.order(tool, **MINIMAL[tool] | body)
    [([place, field], kind)] = problems(response)
    assert place == "body"
    (entry,) = response.json()["detail"]
    return field, kind, entry["msg"]
