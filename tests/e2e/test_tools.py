"""Every tool over HTTP, on the model or algorithm that the local profile runs it with."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw, ImageFilter
from support.outcomes import outcome
from support.pictures import sent

from serve_app.cli.service import Client

Pixels = npt.NDArray[np.int16]


def pixels_of(picture: Image.Image) -> Pixels:
    return np.asarray(picture.convert("RGB"), np.int16)


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    picture = Image.new("RGB", (320, 256), (20, 60, 120))
    drawing = ImageDraw.Draw(picture)
    drawing.ellipse((40, 40, 120, 120), fill="orange")
    drawing.rectangle((190, 130, 260, 200), fill="white")
    return picture


@pytest.fixture(scope="module")
def mask(photo: Image.Image) -> Image.Image:
    """Over the white square."""
    mask = Image.new("L", photo.size, 0)
    ImageDraw.Draw(mask).rectangle((185, 125, 265, 205), fill=255)
    return mask


def make(client: Client, tool: str, **body: Any) -> tuple[dict[str, Any], Image.Image]:
    task = outcome(client, client.submit(f"gen-tools/{tool}", {"output_format": "png", "seed": 1} | body)["id"])
    assert task["status"] == "Ready", task
    return task, Image.open(io.BytesIO(client.fetch(task["result"]["sample"])))


def test_erase_touches_nothing_but_the_widened_mask(client: Client, photo: Image.Image, mask: Image.Image) -> None:
    task, erased = make(client, "erase-v1", image=sent(photo), mask=sent(mask), dilate_pixels=4)
    widened = cv2.dilate(np.asarray(mask), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9))) > 0
    assert erased.size == photo.size
    assert np.array_equal(pixels_of(erased)[~widened], pixels_of(photo)[~widened])
    gone = pixels_of(erased)[140:190, 200:250]
    assert gone.mean() < 180, "the white square is no longer white"
    assert task["cost"] == 3


@pytest.mark.parametrize(("mode", "cost"), [("fast", 4.5), ("high", 20), (None, 20)])
def test_outpainting_keeps_the_picture_and_paints_around_it(
    client: Client, photo: Image.Image, mode: str | None, cost: float
) -> None:
    body = {"input_image": sent(photo), "width": 480, "height": 320, "mode": mode}
    task, extended = make(client, "outpainting-v1", reference_offset_x=100, reference_offset_y=10, **body)
    assert extended.size == (480, 320)
    assert np.array_equal(pixels_of(extended)[10:266, 100:420], pixels_of(photo))
    assert task["cost"] == cost


def test_fast_and_high_do_different_work(client: Client, photo: Image.Image) -> None:
    body = {"input_image": sent(photo), "width": 480, "height": 320}
    fast, high = (make(client, "outpainting-v1", mode=mode, **body)[1] for mode in ("fast", "high"))
    assert fast.tobytes() != high.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["vto-v1", "vto-v2"])
def test_try_on_has_the_persons_size_and_looks_at_both(client: Client, photo: Image.Image, version: str) -> None:
    garments = [Image.new("RGB", (200, 200), colour) for colour in ("green", "red")]
    results = [make(client, version, person=sent(photo), garment=sent(each)) for each in garments]
    assert [picture.size for _, picture in results] == [photo.size] * 2
    assert results[0][1].tobytes() != results[1][1].tobytes()
    assert results[0][0]["result"]["prompt"].startswith("Put the garment from image 2 on the person from image 1")


def test_deblur_comes_closer_to_the_sharp_picture(client: Client, photo: Image.Image) -> None:
    blurred = photo.filter(ImageFilter.GaussianBlur(2))
    _, sharpened = make(client, "deblur-v1", image=sent(blurred))

    def error(picture: Image.Image) -> float:
        return float(np.square(pixels_of(picture) - pixels_of(photo)).mean())

    assert sharpened.size == photo.size
    assert error(sharpened) < 0.7 * error(blurred)


@pytest.mark.slow
def test_a_subject_is_cut_out_of_its_background(client: Client) -> None:
    body = {"prompt": "a large red circle on a white background", "width": 512, "height": 512, "seed": 3}
    body |= {"disable_pup": True, "output_format": "png"}
    ids = [client.submit("gen-2-max", body | {"transparent_bg": cut})["id"] for cut in (True, False)]
    cut, whole = (
        np.asarray(Image.open(io.BytesIO(client.fetch(outcome(client, each)["result"]["sample"]))), np.int16)
        for each in ids
    )
    red = (whole[..., 0] - whole[..., 1:3].max(axis=2)) > 60
    subject = cut[..., 3] > 127
    assert (red & subject).sum() / (red | subject).sum() >= 0.9
