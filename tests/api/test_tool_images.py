"""Images of the tools: how they may be sent, what is made of them for the model, and which are too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.http_client import Client
from support.http_service import Service
from support.images import encode_image, image_base64, image_file, to_base64
from support.input_images import stored_as
from support.promises import promise
from support.website import Website
from support.worker import Worker
from tool_endpoints import (
    DEBLUR,
    ERASE,
    IMAGE_FIELDS,
    MINIMAL,
    OUTPAINTING,
    PHOTO,
    PHOTO_FILE,
    SPOT_FILE,
    TRY_ON_1,
    TRY_ON_2,
    TRY_ONS,
    get_image,
    get_problem,
    large,
    make_photo,
    mask,
    pixels,
    stored_file,
)

MEGAPIXEL = 2**20

AS_THEY_ARE: dict[str, list[bytes]] = {
    ERASE: [PHOTO_FILE],
    TRY_ON_1: [PHOTO_FILE, PHOTO_FILE],
    TRY_ON_2: [PHOTO_FILE, PHOTO_FILE],
    DEBLUR: [PHOTO_FILE],
}
"""The references of the least request of the tools that pass on what they get."""


@promise("Decided: tools", "Images as base64 or URL.")
@pytest.mark.parametrize("form", ["base64", "data", "url"])
@pytest.mark.parametrize(("tool", "field"), IMAGE_FIELDS)
def test_every_way_leads_to_the_same(
    client: Client, worker: Worker, web: Website, tool: str, field: str, form: str
) -> None:
    file = SPOT_FILE if field == "mask" else PHOTO_FILE
    value = {
        "base64": to_base64(file),
        "data": f"data:image/png;base64,{to_base64(file)}",
        "url": web.set_page(f"/{tool}/{field}", file),
    }[form]
    plain = worker.job(client.order_task(tool, **MINIMAL[tool]))
    job = worker.job(client.order_task(tool, **MINIMAL[tool] | {field: value}))

    def files(job: dict[str, Any]) -> list[bytes]:
        return [stored_file(worker, key) for key in (*job["references"], job["mask"]) if key]

    assert files(job) == files(plain)
    if tool in AS_THEY_ARE:
        assert files(job)[: len(AS_THEY_ARE[tool])] == [stored_as(each) for each in AS_THEY_ARE[tool]]
    assert (job["width"], job["height"]) == (plain["width"], plain["height"])


@pytest.mark.parametrize("tool", TRY_ONS)
def test_the_person_comes_before_the_garment(client: Client, worker: Worker, tool: str) -> None:
    person, garment = encode_image(make_photo(80, 100)), encode_image(make_photo(120, 90))
    job = worker.job(client.order_task(tool, garment=to_base64(garment), person=to_base64(person)))
    assert [stored_file(worker, key) for key in job["references"]] == [stored_as(person), stored_as(garment)]
    assert (job["width"], job["height"]) == (80, 100)


@promise("11. Tool endpoints", "inputs up to 4 MP used as-is")
@pytest.mark.parametrize(("tool", "size"), [(TRY_ON_1, (2048, 1024)), (TRY_ON_2, (2048, 2048))])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_images_up_to_the_limit_are_used_as_they_are(
    client: Client, worker: Worker, tool: str, size: tuple[int, int], field: str
) -> None:
    file = image_file(*size, mode="L")
    job = worker.job(client.order_task(tool, **MINIMAL[tool] | {field: to_base64(file)}))
    assert stored_as(file) in [stored_file(worker, key) for key in job["references"]]
    assert (job["width"], job["height"]) == (size if field == "person" else (96, 64))


@promise("11. Tool endpoints", "inputs up to 2 MP, larger inputs are downscaled to about 1 MP")
@pytest.mark.parametrize("size", [(2049, 1024), (5120, 4096), (8000, 300)])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_larger_ones_are_scaled_to_about_a_megapixel(
    client: Client, worker: Worker, size: tuple[int, int], field: str
) -> None:
    reply = client.order(TRY_ON_1, **MINIMAL[TRY_ON_1] | {field: large(*size)}).json()
    job = worker.job(reply["id"])
    scaled, other = (get_image(worker, key) for key in job["references"][:: 1 if field == "person" else -1])
    assert other.size == (96, 64)
    assert scaled.width * scaled.height == pytest.approx(MEGAPIXEL, rel=0.01)
    assert scaled.width / scaled.height == pytest.approx(size[0] / size[1], rel=0.01)
    assert (job["width"], job["height"]) == (scaled.size if field == "person" else (96, 64))
    assert reply["input_mp"] == pytest.approx((size[0] * size[1] + 96 * 64) / MEGAPIXEL, abs=0.01), "as sent"


@pytest.mark.parametrize(
    ("mode", "form", "expected_mode"),
    [("L", "JPEG", "L"), ("CMYK", "JPEG", "RGB"), ("RGBA", "PNG", "RGBA"), ("P", "PNG", "RGB"), ("I;16", "PNG", "L")],
)
def test_images_of_all_kinds_can_be_scaled(
    client: Client, worker: Worker, mode: str, form: str, expected_mode: str
) -> None:
    person = to_base64(image_file(1600, 1500, form, mode))
    job = worker.job(client.order_task(TRY_ON_1, person=person, garment=PHOTO))
    image = get_image(worker, job["references"][0])
    assert (image.mode, image.size) == (expected_mode, (job["width"], job["height"]))


@promise("Decided: tools", "v2: up to 4 MP as they are, over that 422")
def test_of_two_that_are_too_large_the_person_is_named(client: Client, service: Service) -> None:
    both = dict.fromkeys(("person", "garment"), large(2049, 2048))
    assert get_problem(client, service, TRY_ON_2, **both)[:2] == ("person", "image_too_large")


MAX_AREA = 16_822_272


@promise("11. Tool endpoints", "optional edge expansion")
@pytest.mark.parametrize(
    ("body", "reach"), [({}, 10), ({"dilate_pixels": None}, 10), *(({"dilate_pixels": n}, n) for n in (0, 1, 2, 25))]
)
def test_what_is_removed_is_widened(client: Client, worker: Worker, body: dict[str, Any], reach: int) -> None:
    dot = mask((45, 30, 46, 31))
    mask_image = get_image(
        worker, worker.job(client.order_task(ERASE, image=PHOTO, mask=image_base64(dot), **body))["mask"]
    )
    assert (mask_image.mode, mask_image.format, mask_image.size) == ("L", "PNG", (96, 64))
    white = pixels(mask_image)
    assert set(np.unique(white)) == {0, 255}
    assert mask_image.getbbox() == (45 - reach, 30 - reach, 46 + reach, 31 + reach)
    down, across = np.mgrid[:64, :96]
    distance = np.hypot(across - 45, down - 30)
    assert (white[distance <= reach - 1] == 255).all()
    assert (white[distance > reach + 1] == 0).all()


def test_masks_of_all_kinds_come_to_the_same(client: Client, worker: Worker) -> None:
    spot = mask((40, 24, 56, 40))
    alpha = Image.new("RGBA", spot.size, (255, 255, 255, 0))
    alpha.paste((255, 255, 255, 255), (40, 24, 56, 40))
    deep = spot.convert("I").point(lambda level: level * 257).convert("I;16")
    kinds = [
        image_base64(each) for each in (spot, spot.convert("1"), spot.convert("RGB"), spot.convert("P"), deep, alpha)
    ]
    # 8x8 blocks of one colour each survive exactly enough.
    for number, value in enumerate((*kinds, image_base64(spot, "JPEG"))):
        mask_image = get_image(
            worker, worker.job(client.order_task(ERASE, image=PHOTO, mask=value, dilate_pixels=0))["mask"]
        )
        assert (pixels(mask_image) == pixels(spot)).all(), number


@pytest.mark.parametrize("empty", [Image.new("L", (96, 64), 127), Image.new("RGBA", (96, 64), (255, 255, 255, 0))])
def test_a_mask_without_white(client: Client, service: Service, empty: Image.Image) -> None:
    field, kind, _ = get_problem(client, service, ERASE, mask=image_base64(empty))
    assert (field, kind) == ("mask", "mask_empty")


def test_a_mask_that_leaves_nothing(client: Client, service: Service) -> None:
    # Ten pixels are left along one side of the second.
    white, most = (image_base64(mask((0, 0, width, 64))) for width in (96, 86))
    for value, reach, advised in ((white, 0, False), (white, 10, False), (most, 10, True)):
        field, kind, message = get_problem(client, service, ERASE, mask=value, dilate_pixels=reach)
        assert (field, kind, "dilate_pixels" in message) == ("mask", "mask_full", advised)
    client.order_task(ERASE, image=PHOTO, mask=most, dilate_pixels=9)


def test_erasing_takes_the_largest_images(client: Client, worker: Worker) -> None:
    spot = image_base64(mask((10, 10, 50, 50), size=(5120, 4096), mode="1"))
    reply = client.order(ERASE, image=large(5120, 4096), mask=spot).json()
    job = worker.job(reply["id"])
    assert job["area"] == job["width"] * job["height"] <= MAX_AREA
    assert job["width"] / job["height"] == pytest.approx(5120 / 4096, rel=1e-3)
    assert reply["input_mp"] == 20
    assert reply["output_mp"] == pytest.approx(MAX_AREA / MEGAPIXEL, abs=0.02)


@promise("Decided: tools", "`mask`* (black/white, same size, white = remove)")
@pytest.mark.parametrize("size", [(95, 64), (96, 65), (192, 128)])
def test_a_mask_of_another_size(client: Client, service: Service, size: tuple[int, int]) -> None:
    field, kind, _ = get_problem(client, service, ERASE, mask=image_base64(mask((0, 0, 9, 9), size=size)))
    assert (field, kind) == ("mask", "mask_size")


@promise("11. Tool endpoints", "placement of the reference via `reference_offset_x` / `reference_offset_y`")
@pytest.mark.parametrize(
    ("size", "body", "corner"),
    [
        ((128, 96), {}, (16, 16)),
        ((129, 97), {}, (16, 16)),
        ((128, 96), {"reference_offset_y": 32}, (16, 32)),
        ((128, 96), {"reference_offset_x": 32, "reference_offset_y": 0}, (32, 0)),
        # Cut off.
        ((65, 96), {"auto_crop": True}, (-16, 16)),
        ((128, 96), {"auto_crop": True, "reference_offset_x": -95, "reference_offset_y": -63}, (-95, -63)),
        ((128, 96), {"auto_crop": True, "reference_offset_x": 127, "reference_offset_y": 95}, (127, 95)),
        ((64, 64), {"auto_crop": True, "reference_offset_x": 1}, (1, 0)),
    ],
)
def test_the_image_lies_on_the_canvas(
    client: Client, worker: Worker, size: tuple[int, int], body: dict[str, Any], corner: tuple[int, int]
) -> None:
    width, height = size
    job = worker.job(client.order_task(OUTPAINTING, input_image=PHOTO, width=width, height=height, **body))
    (key,) = job["references"]
    canvas, unpainted = get_image(worker, key), get_image(worker, job["mask"])
    assert (canvas.size, canvas.mode, canvas.format) == (size, "RGB", "PNG")
    assert (unpainted.size, unpainted.mode, unpainted.format) == (size, "L", "PNG")
    left, top = corner
    inside = (max(left, 0), max(top, 0), min(left + 96, width), min(top + 64, height))
    own = pixels(make_photo().crop((inside[0] - left, inside[1] - top, inside[2] - left, inside[3] - top)))
    assert (pixels(canvas.crop(inside)) == own).all()
    expected = np.full((height, width), 255)
    expected[inside[1] : inside[3], inside[0] : inside[2]] = 0
    assert (pixels(unpainted) == expected).all()
    assert (job["width"], job["height"], job["area"]) == (width, height, width * height)


def test_what_is_transparent_is_shown_over_white(client: Client, worker: Worker) -> None:
    image = make_photo().convert("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    job = worker.job(client.order_task(OUTPAINTING, **MINIMAL[OUTPAINTING] | {"input_image": image_base64(image)}))
    assert (pixels(get_image(worker, job["references"][0]).crop((16, 16, 112, 80))) == 255).all()


@promise("Decided: tools", "`auto_crop` false (an overflow is then a 422)")
@pytest.mark.parametrize(
    ("body", "field", "kind"),
    [
        ({"width": 95}, "width", "reference_overflow"),
        ({"height": 79, "input_image": large(96, 80)}, "height", "reference_overflow"),
        ({"reference_offset_x": -1}, "reference_offset_x", "reference_overflow"),
        ({"reference_offset_x": 33}, "reference_offset_x", "reference_overflow"),
        ({"reference_offset_y": -1}, "reference_offset_y", "reference_overflow"),
        ({"reference_offset_y": 33}, "reference_offset_y", "reference_overflow"),
        ({"reference_offset_x": 128}, "reference_offset_x", "reference_outside"),
        ({"reference_offset_y": -64}, "reference_offset_y", "reference_outside"),
        ({"auto_crop": True, "reference_offset_x": -96}, "reference_offset_x", "reference_outside"),
        ({"auto_crop": True, "reference_offset_x": 128}, "reference_offset_x", "reference_outside"),
        ({"auto_crop": True, "reference_offset_y": -64}, "reference_offset_y", "reference_outside"),
        ({"auto_crop": True, "reference_offset_y": 96}, "reference_offset_y", "reference_outside"),
        ({"width": 96, "height": 64}, "width", "nothing_to_paint"),
        ({"width": 64, "height": 64, "auto_crop": True}, "width", "nothing_to_paint"),
    ],
)
def test_images_that_do_not_fit_the_canvas(
    client: Client, service: Service, body: dict[str, Any], field: str, kind: str
) -> None:
    assert get_problem(client, service, OUTPAINTING, **body)[:2] == (field, kind)


@promise("Limits", "4 MP output (outpainting)")
def test_outpainting_takes_the_largest_images(client: Client, worker: Worker) -> None:
    body = {"input_image": large(5120, 4096), "width": 2048, "height": 2048, "reference_offset_x": 1000}
    reply = client.order(OUTPAINTING, **body, auto_crop=True).json()
    assert (reply["input_mp"], reply["output_mp"]) == (20, 4)
    canvas = get_image(worker, worker.job(reply["id"])["references"][0])
    assert canvas.size == (2048, 2048)
