"""Where a picture lies on the canvas that outpainting extends it to, and where it can't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.client import Client
from support.http_service import Service
from support.pictures import sent
from support.promises import promise
from support.worker import Worker
from tool_endpoints import MINIMAL, OUTPAINTING, PHOTO, coloured, large, pixels, refused, stored


@promise("11. Tool endpoints", "placement of the reference via `reference_offset_x` / `reference_offset_y`")
@pytest.mark.parametrize(
    ("size", "body", "corner"),
    [
        ((128, 96), {}, (16, 16)),
        ((129, 97), {}, (16, 16)),
        ((97, 64), {}, (0, 0)),
        ((128, 96), {"reference_offset_x": None, "reference_offset_y": None}, (16, 16)),
        ((128, 96), {"reference_offset_x": 0}, (0, 16)),
        ((128, 96), {"reference_offset_y": 32}, (16, 32)),
        ((128, 96), {"reference_offset_x": 32, "reference_offset_y": 0}, (32, 0)),
        ((128, 64), {"reference_offset_x": 7}, (7, 0)),
        # Cut off.
        ((128, 96), {"auto_crop": True}, (16, 16)),
        ((64, 96), {"auto_crop": True}, (-16, 16)),
        ((65, 96), {"auto_crop": True}, (-16, 16)),
        ((128, 96), {"auto_crop": True, "reference_offset_x": -95, "reference_offset_y": -63}, (-95, -63)),
        ((128, 96), {"auto_crop": True, "reference_offset_x": 127, "reference_offset_y": 95}, (127, 95)),
        ((64, 64), {"auto_crop": True, "reference_offset_x": 1}, (1, 0)),
    ],
)
def test_the_picture_lies_on_the_canvas(
    client: Client, worker: Worker, size: tuple[int, int], body: dict[str, Any], corner: tuple[int, int]
) -> None:
    width, height = size
    job = worker.job(client.ordered(OUTPAINTING, input_image=PHOTO, width=width, height=height, **body))
    (key,) = job["references"]
    canvas, unpainted = stored(worker, key), stored(worker, job["mask"])
    assert (canvas.size, canvas.mode, canvas.format) == (size, "RGB", "PNG")
    assert (unpainted.size, unpainted.mode, unpainted.format) == (size, "L", "PNG")
    left, top = corner
    inside = (max(left, 0), max(top, 0), min(left + 96, width), min(top + 64, height))
    own = pixels(coloured().crop((inside[0] - left, inside[1] - top, inside[2] - left, inside[3] - top)))
    assert (pixels(canvas.crop(inside)) == own).all()
    expected = np.full((height, width), 255)
    expected[inside[1] : inside[3], inside[0] : inside[2]] = 0
    assert (pixels(unpainted) == expected).all()
    assert (job["width"], job["height"], job["area"]) == (width, height, width * height)


def test_what_is_transparent_is_shown_over_white(client: Client, worker: Worker) -> None:
    image = coloured().convert("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    job = worker.job(client.ordered(OUTPAINTING, **MINIMAL[OUTPAINTING] | {"input_image": sent(image)}))
    assert (pixels(stored(worker, job["references"][0]).crop((16, 16, 112, 80))) == 255).all()


@promise("Decided: tools", "`auto_crop` false (an overflow is then a 422)")
@pytest.mark.parametrize(
    ("body", "field", "kind"),
    [
        ({"width": 95}, "width", "reference_overflow"),
        ({"width": 64, "reference_offset_x": 0}, "width", "reference_overflow"),
        ({"height": 79, "input_image": large(96, 80)}, "height", "reference_overflow"),
        ({"reference_offset_x": -1}, "reference_offset_x", "reference_overflow"),
        ({"reference_offset_x": 33}, "reference_offset_x", "reference_overflow"),
        ({"reference_offset_y": -1}, "reference_offset_y", "reference_overflow"),
        ({"reference_offset_y": 33}, "reference_offset_y", "reference_overflow"),
        ({"reference_offset_x": -96}, "reference_offset_x", "reference_outside"),
        ({"reference_offset_x": 128}, "reference_offset_x", "reference_outside"),
        ({"reference_offset_y": -64}, "reference_offset_y", "reference_outside"),
        ({"reference_offset_y": 96}, "reference_offset_y", "reference_outside"),
        ({"reference_offset_x": 100_000}, "reference_offset_x", "reference_outside"),
        ({"auto_crop": True, "reference_offset_x": -96}, "reference_offset_x", "reference_outside"),
        ({"auto_crop": True, "reference_offset_x": 128}, "reference_offset_x", "reference_outside"),
        ({"auto_crop": True, "reference_offset_y": -64}, "reference_offset_y", "reference_outside"),
        ({"auto_crop": True, "reference_offset_y": 96}, "reference_offset_y", "reference_outside"),
        ({"auto_crop": True, "reference_offset_y": -100_000}, "reference_offset_y", "reference_outside"),
        ({"width": 96, "height": 64}, "width", "nothing_to_paint"),
        ({"width": 64, "height": 64, "auto_crop": True}, "width", "nothing_to_paint"),
        ({"width": 64, "height": 64, "auto_crop": True, "reference_offset_x": -32}, "width", "nothing_to_paint"),
    ],
)
def test_pictures_that_do_not_fit_the_canvas(
    client: Client, service: Service, body: dict[str, Any], field: str, kind: str
) -> None:
    assert refused(client, service, OUTPAINTING, **body)[:2] == (field, kind)


@pytest.mark.parametrize(
    ("body", "limits"),
    [
        ({"width": 95}, ["at least 96"]),
        ({"reference_offset_x": 33}, ["between 0 and 32", "auto_crop"]),
        ({"reference_offset_y": -64}, ["between 0 and 32"]),
        ({"reference_offset_x": -96, "auto_crop": True}, ["between -95 and 127"]),
        ({"width": 96, "height": 64}, ["more than 96", "more than 64"]),
    ],
)
def test_what_would_fit_is_told(client: Client, service: Service, body: dict[str, Any], limits: list[str]) -> None:
    message = refused(client, service, OUTPAINTING, **body)[2]
    assert all(limit in message for limit in limits), message


@promise("Limits", "4 MP output (outpainting)")
def test_outpainting_takes_the_largest_pictures(client: Client, worker: Worker) -> None:
    body = {"input_image": large(5120, 4096), "width": 2048, "height": 2048, "reference_offset_x": 1000}
    reply = client.order(OUTPAINTING, **body, auto_crop=True).json()
    assert (reply["input_mp"], reply["output_mp"]) == (20, 4)
    canvas = stored(worker, worker.job(reply["id"])["references"][0])
    assert canvas.size == (2048, 2048)
