"""What is to be erased: masks of all kinds, widened, and those that can't be used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.client import Client
from support.http_service import Service
from support.input_images import stored_as
from support.pictures import sent
from support.promises import promise
from support.worker import Worker
from tool_endpoints import ERASE, PHOTO, PHOTO_FILE, SPOT, large, mask, pixels, refused, stored, stored_file

MEGAPIXEL = 2**20
MAX_AREA = 16_822_272


def test_the_picture_to_erase_from_is_passed_on_as_it_is(client: Client, worker: Worker) -> None:
    job = worker.job(client.ordered(ERASE, image=PHOTO, mask=SPOT))
    assert [stored_file(worker, key) for key in job["references"]] == [stored_as(PHOTO_FILE)]


@promise("11. Tool endpoints", "optional edge expansion")
@pytest.mark.parametrize(
    ("body", "reach"), [({}, 10), ({"dilate_pixels": None}, 10), *(({"dilate_pixels": n}, n) for n in (0, 1, 2, 25))]
)
def test_what_is_removed_is_widened(client: Client, worker: Worker, body: dict[str, Any], reach: int) -> None:
    dot = mask((45, 30, 46, 31))
    made = stored(worker, worker.job(client.ordered(ERASE, image=PHOTO, mask=sent(dot), **body))["mask"])
    assert (made.mode, made.format, made.size) == ("L", "PNG", (96, 64))
    white = pixels(made)
    assert set(np.unique(white)) == {0, 255}
    assert made.getbbox() == (45 - reach, 30 - reach, 46 + reach, 31 + reach)
    down, across = np.mgrid[:64, :96]
    distance = np.hypot(across - 45, down - 30)
    assert (white[distance <= reach - 1] == 255).all()
    assert (white[distance > reach + 1] == 0).all()


@pytest.mark.parametrize("form", ["grey", "1-bit", "rgb", "palette", "16-bit", "alpha", "jpeg"])
def test_masks_of_all_kinds_come_to_the_same(client: Client, worker: Worker, form: str) -> None:
    spot = mask((40, 24, 56, 40))
    alpha = Image.new("RGBA", spot.size, (255, 255, 255, 0))
    alpha.paste((255, 255, 255, 255), (40, 24, 56, 40))
    value = {
        "grey": sent(spot),
        "1-bit": sent(spot.convert("1")),
        "rgb": sent(spot.convert("RGB")),
        "palette": sent(spot.convert("P")),
        "16-bit": sent(spot.convert("I").point(lambda level: level * 257).convert("I;16")),
        "alpha": sent(alpha),
        # 8x8 blocks of one colour each survive exactly enough.
        "jpeg": sent(spot, "JPEG"),
    }[form]
    made = stored(worker, worker.job(client.ordered(ERASE, image=PHOTO, mask=value, dilate_pixels=0))["mask"])
    assert (pixels(made) == pixels(spot)).all()


@pytest.mark.parametrize("dilate_pixels", [0, 25])
@pytest.mark.parametrize(
    "empty",
    [mask(), mask(mode="RGB"), Image.new("L", (96, 64), 127), Image.new("RGBA", (96, 64), (255, 255, 255, 0))],
    ids=["black", "rgb", "dark-grey", "transparent"],
)
def test_a_mask_without_white(client: Client, service: Service, empty: Image.Image, dilate_pixels: int) -> None:
    field, kind, _ = refused(client, service, ERASE, mask=sent(empty), dilate_pixels=dilate_pixels)
    assert (field, kind) == ("mask", "mask_empty")


def test_a_mask_that_leaves_nothing(client: Client, service: Service) -> None:
    white = mask((0, 0, 96, 64))
    for reach in (0, 10):
        field, kind, message = refused(client, service, ERASE, mask=sent(white), dilate_pixels=reach)
        assert (field, kind) == ("mask", "mask_full")
        assert "dilate_pixels" not in message
    # Ten pixels are left along one side.
    most = sent(mask((0, 0, 86, 64)))
    field, kind, message = refused(client, service, ERASE, mask=most)
    assert (field, kind) == ("mask", "mask_full")
    assert "dilate_pixels = 10" in message
    client.ordered(ERASE, image=PHOTO, mask=most, dilate_pixels=9)


def test_erasing_takes_the_largest_pictures(client: Client, worker: Worker) -> None:
    spot = sent(mask((10, 10, 50, 50), size=(5120, 4096), mode="1"))
    reply = client.order(ERASE, image=large(5120, 4096), mask=spot).json()
    job = worker.job(reply["id"])
    assert job["area"] == job["width"] * job["height"] <= MAX_AREA
    assert job["width"] / job["height"] == pytest.approx(5120 / 4096, rel=1e-3)
    assert reply["input_mp"] == 20
    assert reply["output_mp"] == pytest.approx(MAX_AREA / MEGAPIXEL, abs=0.02)


@promise("Decided: tools", "`mask`* (black/white, same size, white = remove)")
@pytest.mark.parametrize("size", [(95, 64), (96, 65), (64, 96), (192, 128)])
def test_a_mask_of_another_size(client: Client, service: Service, size: tuple[int, int]) -> None:
    field, kind, message = refused(client, service, ERASE, mask=sent(mask((0, 0, 9, 9), size=size)))
    assert (field, kind) == ("mask", "mask_size")
    assert "96x64" in message
    assert f"{size[0]}x{size[1]}" in message
