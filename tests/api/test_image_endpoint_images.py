"""Images of the image endpoints before generation 3: every field, masks, alpha channels, which image is used."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from image_endpoints import IMAGE_FIELDS, MASK, MINIMAL, PHOTO, cut_out
from PIL import Image
from support.http_client import Client, problems
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.promises import promise
from support.website import Website
from support.worker import Worker

from serve_app.config.model_settings import ModelSettings

FILL, CANNY = "gen-pro-1.0-fill", "gen-pro-1.0-canny"
MB = 2**20
WHITE = Image.new("L", (96, 64), 255)


def as_png(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return to_base64(buffer.getvalue())


def make_animation() -> str:
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (96, 64), colour) for colour in ("red", "blue")]
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:])
    return to_base64(buffer.getvalue())


def get_image(worker: Worker, key: str) -> Image.Image:
    return Image.open(io.BytesIO(worker.run(worker.objects.get(key))))


def keys(job: dict[str, Any]) -> list[str]:
    single = [job["mask"], job["control"], job["image_prompt"]]
    return [*job["references"]] + [key for key in single if key is not None]


BAD: dict[str, Callable[[], str]] = {
    "no-base64": lambda: "nonsense!",
    "no-image": lambda: to_base64(b"<svg/>"),
    "truncated": lambda: to_base64(image_file()[:-30]),
    "gif": lambda: to_base64(image_file(form="GIF")),
    "bomb": cache(lambda: to_base64(image_file(20_000, 20_000, mode="1"))),  # takes seconds to make
    "over-20-mp": cache(lambda: to_base64(image_file(5121, 4096, mode="L"))),
    "inside": lambda: "http://127.0.0.1/secret.png",
}


@promise("Decided: submission", "not an image, truncated, or too large: 422 naming the field")
@pytest.mark.parametrize(("endpoint", "field"), IMAGE_FIELDS)
def test_a_bad_image_is_named(client: Client, service: Service, endpoint: str, field: str) -> None:
    # Each field meets one kind in full, all kinds are met over the fields; test_images.py goes through them at one.
    index = IMAGE_FIELDS.index((endpoint, field))
    kinds = list(BAD)
    for kind in (kinds[index % len(kinds)], kinds[(index + 3) % len(kinds)]):
        bad = BAD[kind]()
        with service.assert_unchanged():
            response = client.order(endpoint, **MINIMAL[endpoint] | {field: bad})
        assert problems(response) == [(["body", field], "image_invalid")], kind
        assert bad[:40] not in response.text


@pytest.mark.parametrize(("endpoint", "field"), IMAGE_FIELDS)
def test_what_is_sent_reaches_the_model_in_its_place(
    client: Client, worker: Worker, web: Website, endpoint: str, field: str
) -> None:
    url = web.set_page(f"/{endpoint}/{field}", image_file(96, 64, form="WEBP", white=field == "mask"))
    job = worker.job(client.order_task(endpoint, **MINIMAL[endpoint] | {field: url}))
    place = {"mask": "mask", "image_prompt": "image_prompt"}.get(
        field, "control" if endpoint == CANNY else "references"
    )
    assert job[place]
    assert all(get_image(worker, key).size == (96, 64) for key in keys(job))
    assert len(set(keys(job))) == (2 if endpoint == FILL else 1)


PECULIAR = {
    "exif": to_base64(image_file(64, 96, "JPEG", orientation=6)),
    "cmyk": to_base64(image_file(96, 64, "JPEG", mode="CMYK")),
    "16-bit": to_base64(image_file(96, 64, mode="I;16")),
    "palette": to_base64(image_file(96, 64, mode="P")),
    "animated": make_animation(),
}


@pytest.mark.parametrize("kind", PECULIAR)
@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        ("gen-2-max", "input_image"),
        ("gen-kontext-pro", "input_image_4"),
        ("gen-pro", "image_prompt"),
        (FILL, "image"),
        (CANNY, "preprocessed_image"),
    ],
)
def test_peculiar_images_are_made_plain(client: Client, worker: Worker, endpoint: str, field: str, kind: str) -> None:
    job = worker.job(client.order_task(endpoint, **MINIMAL[endpoint] | {field: PECULIAR[kind]}))
    assert keys(job)
    for key in keys(job):
        image = get_image(worker, key)
        assert image.size == (96, 64)
        assert image.mode in ("L", "RGB", "RGBA")
        assert getattr(image, "n_frames", 1) == 1
    assert (job["width"], job["height"]) != (64, 96)


# Masks.


@pytest.mark.parametrize(
    "mask",
    [
        as_png(WHITE),
        as_png(WHITE.convert("1")),
        as_png(WHITE.convert("RGB")),
        as_png(WHITE.convert("LA")),
        as_png(WHITE.convert("P")),
        as_png(WHITE.convert("I").point(lambda v: v * 257).convert("I;16")),
        to_base64(image_file(64, 96, "JPEG", mode="L", orientation=6, white=True)),
    ],
    ids=["grey", "1-bit", "rgb", "alpha", "palette", "16-bit", "turned"],
)
def test_a_mask_is_stored_grey(client: Client, worker: Worker, mask: str) -> None:
    job = worker.job(client.order_task(FILL, image=PHOTO, mask=mask))
    stored_mask = get_image(worker, job["mask"])
    assert (stored_mask.mode, stored_mask.format, stored_mask.size) == ("L", "PNG", (96, 64))
    assert stored_mask.getextrema() == (255, 255)


def test_what_is_transparent_in_a_mask_is_black(client: Client, worker: Worker) -> None:
    image = Image.new("RGBA", (96, 64), (255, 255, 255, 0))
    image.paste((255, 255, 255, 255), (0, 0, 10, 64))
    mask_pixels = np.asarray(
        get_image(worker, worker.job(client.order_task(FILL, image=PHOTO, mask=as_png(image)))["mask"])
    )
    assert (mask_pixels[:, :10] == 255).all()
    assert (mask_pixels[:, 10:] == 0).all()


@promise("6. gen-pro-1.0-fill", "the service verifies that mask and image dimensions match")
@pytest.mark.parametrize("size", [(95, 64), (96, 65), (192, 128)])
def test_a_mask_of_another_size(client: Client, service: Service, size: tuple[int, int]) -> None:
    with service.assert_unchanged():
        response = client.order(FILL, image=PHOTO, mask=to_base64(image_file(*size, mode="L")))
    assert problems(response) == [(["body", "mask"], "mask_size")]


@pytest.mark.parametrize("mask", [Image.new("L", (96, 64), 127), Image.new("RGB", (96, 64), (255, 0, 0))])
def test_a_mask_that_selects_nothing_is_refused_and_costs_nothing(
    client: Client, service: Service, mask: Image.Image
) -> None:
    with service.assert_unchanged():
        response = client.order(FILL, image=PHOTO, mask=as_png(mask))
    assert problems(response) == [(["body", "mask"], "mask_empty")]


@promise("Decided: submission", "EXIF orientation applied")
def test_image_and_mask_are_compared_upright(client: Client) -> None:
    turned = to_base64(image_file(64, 96, "JPEG", orientation=6))
    client.order_task(FILL, image=turned, mask=MASK)
    assert problems(client.order(FILL, image=turned, mask=to_base64(image_file(64, 96)))) == [
        (["body", "mask"], "mask_size")
    ]


@promise("6. gen-pro-1.0-fill", "optional when the image has an alpha mask")
def test_transparent_parts_are_repainted_when_there_is_no_mask(client: Client, worker: Worker) -> None:
    job = worker.job(client.order_task(FILL, image=cut_out((10, 20, 30, 40))))
    mask_pixels = np.asarray(get_image(worker, job["mask"]))
    assert (mask_pixels[20:40, 10:30] == 0).all()
    assert mask_pixels.sum() == 255 * (96 * 64 - 20 * 20)
    assert len(job["references"]) == 1
    # A mask wins.
    job = worker.job(client.order_task(FILL, image=cut_out((10, 20, 30, 40)), mask=MASK))
    mask_pixels = np.asarray(get_image(worker, job["mask"]))
    assert (mask_pixels[16:48, 24:72] == 255).all()
    assert mask_pixels.sum() == 255 * 32 * 48


@pytest.mark.parametrize("image", [PHOTO, cut_out(None)], ids=["no-alpha", "opaque-alpha"])
def test_nothing_says_what_to_repaint(client: Client, service: Service, image: str) -> None:
    for body in ({}, {"mask": None}):
        with service.assert_unchanged():
            assert problems(client.order(FILL, image=image, **body)) == [(["body", "mask"], "missing")]


@promise("Decided: submission", "Fill: `input_image` accepted as a synonym of `image`.")
def test_fill_takes_input_image_for_image(client: Client, worker: Worker) -> None:
    for body in ({}, {"image": None}):
        job = worker.job(client.order_task(FILL, **body, input_image=PHOTO, mask=MASK))
        assert (job["width"], job["height"]) == (96, 64)
    other = to_base64(image_file(80, 70))
    job = worker.job(client.order_task(FILL, image=PHOTO, input_image=other, mask=MASK))
    assert (job["width"], job["height"]) == (96, 64), "the endpoint's own name counts"


@promise("7. gen-pro-1.0-canny", "bypasses the control preprocessing step")
def test_edges_are_looked_for_unless_they_are_sent(client: Client, worker: Worker, web: Website) -> None:
    unused = web.set_page("/unused", image_file())
    edges = to_base64(image_file(80, 70))
    looked_for = worker.job(client.order_task(CANNY, prompt="x", control_image=PHOTO))
    edges_job = worker.job(client.order_task(CANNY, prompt="x", control_image=unused, preprocessed_image=edges))
    assert looked_for["canny"] == (50, 200)
    assert edges_job["canny"] is None
    assert get_image(worker, edges_job["control"]).size == (80, 70)
    assert "/unused" not in web.paths


def test_an_image_prompt_is_refused_where_no_model_reads_one(start_service: StartService) -> None:
    models = {"flux1-dev": ModelSettings(checkpoint="bundled/kontext")}
    with start_service(models=models).client() as client:
        response = client.order("gen-pro", prompt="a cat", image_prompt=PHOTO)
        assert problems(response) == [(["body", "image_prompt"], "image_prompt_not_available")]
        client.order_task("gen-pro", prompt="a cat")
