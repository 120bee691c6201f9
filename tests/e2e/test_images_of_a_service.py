"""Images over HTTP, as a client gets them: they show what was asked for, on every family of endpoints and tools.

What each example of the description makes is in `test_examples.py`.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import safetensors.torch
import torch
from gen_serve_client import Refused
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from support.images import image_base64
from support.local_service import LocalService
from support.polling import outcome, poll_result
from support.scenes import Ground, Shape, ShapeScene

from serve_app.cli.service import Client

KLEIN = "gen-3-image-klein"
SMALL = {"width": 64, "height": 64}
SQUARE = {"aspect_ratio": "1:1", "resolution": "768sq", "steps": 4, "seed": 11}
Make = Callable[..., tuple[dict[str, Any], Image.Image]]


@pytest.fixture
def make(client: Client) -> Make:
    """From a request to its task, which is ready, and its image."""

    def make(endpoint: str, **body: Any) -> tuple[dict[str, Any], Image.Image]:
        task = outcome(client, client.submit(endpoint, {"output_format": "png", "seed": 1} | body)["id"])
        assert task["status"] == "Ready", task
        return task, Image.open(io.BytesIO(client.fetch(task["result"]["sample"])))

    return make


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    image = Image.new("RGB", (320, 256), (20, 60, 120))
    drawing = ImageDraw.Draw(image)
    drawing.ellipse((40, 40, 120, 120), fill="orange")
    drawing.rectangle((190, 130, 260, 200), fill="white")
    return image


def pixels(image: Image.Image) -> NDArray[np.int16]:
    return np.asarray(image.convert("RGB"), np.int16)


def faults(image: Image.Image, *things: Shape, background: str) -> list[str]:
    """What the image shows otherwise."""
    return ShapeScene(things, Ground(background)).faults(np.asarray(image.convert("RGB")))


def drawing(*things: Shape, background: str) -> Image.Image:
    return Image.fromarray(ShapeScene(things, Ground(background)).draw())


def make_mask(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    mask = Image.new("L", size, 0)
    ImageDraw.Draw(mask).rectangle(box, fill=255)
    return mask


@pytest.mark.parametrize(
    ("prompt", "thing", "background"),
    [
        ("a large blue circle on a yellow background", Shape("circle", "blue", "large"), "yellow"),
        (
            "a small black heart in the top right corner on a pink background",
            Shape("heart", "black", "small", "top right"),
            "pink",
        ),
    ],
)
def test_a_prompt_is_obeyed(make: Make, prompt: str, thing: Shape, background: str) -> None:
    assert faults(make(KLEIN, prompt=prompt, **SQUARE)[1], thing, background=background) == []


def test_an_edit_changes_the_colour_and_keeps_the_place(make: Make) -> None:
    _, first = make(KLEIN, prompt="a large red circle on the left on a white background", **SQUARE)
    _, second = make(KLEIN, prompt="make the circle blue", images=[image_base64(first)], **SQUARE)
    assert faults(second, Shape("circle", "blue", "large", "left"), background="white") == []


def test_an_edit_keeps_the_size_of_its_first_reference_and_depends_on_both(make: Make) -> None:
    red, blue = Image.new("RGB", (150, 90), "red"), Image.new("RGB", (64, 64), "blue")
    both = [
        [image_base64(red)],
        [image_base64(red), image_base64(blue)],
        [image_base64(red), image_base64(red.resize((64, 64)))],
    ]
    results = [make(KLEIN, prompt="put the second into the first", steps=2, images=images)[1] for images in both]
    assert {image.size for image in results} == {(150, 90)}
    assert len({image.tobytes() for image in results}) == 3


@pytest.mark.parametrize("output_format", ["jpeg", "png", "webp"])
def test_every_format_and_a_size_off_the_grid(make: Make, output_format: str) -> None:
    task, image = make(KLEIN, prompt="x", width=130, height=77, steps=2, output_format=output_format)
    assert (image.format, image.size) == (output_format.upper(), (130, 77))
    assert task["result"]["sample"].split("?")[0].endswith(f".{output_format}")
    assert (task["progress"], task["cost"]) == (1.0, 0.9)


def test_the_ratio_is_chosen_from_the_prompt(make: Make) -> None:
    assert make(KLEIN, prompt="a square image of a lighthouse", steps=1)[1].size == (1024, 1024)


def test_a_seed_that_was_left_out_is_reported_and_gives_the_image_again(make: Make) -> None:
    first, a = make(KLEIN, prompt="x", steps=2, seed=None, **SMALL)
    _, b = make(KLEIN, prompt="x", steps=2, seed=first["result"]["seed"], **SMALL)
    _, c = make(KLEIN, prompt="x", steps=2, seed=first["result"]["seed"] ^ 1, **SMALL)
    assert np.abs(pixels(a) - pixels(b)).max() <= 1
    assert a.tobytes() != c.tobytes()


@pytest.mark.slow
def test_kontext_keeps_what_an_edit_is_not_about(make: Make) -> None:
    before = drawing(Shape("circle", "red", "large", "left"), background="white")
    _, after = make("gen-kontext-pro", prompt="move the circle to the right", input_image=image_base64(before), seed=11)
    assert faults(after, Shape("circle", "red", "large", "right"), background="white") == []


@pytest.mark.slow
def test_gen_2_max_rewrites_and_cuts_out_and_can_be_told_not_to(make: Make) -> None:
    body = {"prompt": "a large red circle on a white background", "width": 512, "height": 512, "seed": 3}
    rewritten, cut = make("gen-2-max", transparent_bg=True, **body)
    plain, _ = make("gen-2-max", disable_pup=True, **body)
    assert rewritten["result"]["prompt"].startswith(body["prompt"] + ", ")
    assert plain["result"]["prompt"] == body["prompt"]
    red = (pixels(cut)[..., 0] - pixels(cut)[..., 1:].max(axis=2)) > 60
    subject = np.asarray(cut)[..., 3] > 127
    assert (red & subject).sum() / (red | subject).sum() >= 0.9


@pytest.mark.slow
def test_gen_pro_looks_at_its_image_prompt_and_its_interval(make: Make, photo: Image.Image) -> None:
    body = {"prompt": "a fox", "width": 256, "height": 256, "steps": 4}
    images = [
        make("gen-pro", **body, **more)[1] for more in ({}, {"image_prompt": image_base64(photo)}, {"interval": 1})
    ]
    assert len({image.tobytes() for image in images}) == len(images)


@pytest.mark.slow
def test_guidance_says_how_far_the_words_are_followed(make: Make) -> None:
    """`guidance`: "higher improves prompt adherence at the cost of realism"."""
    body = {"prompt": "a large blue star on a green background", "width": 512, "height": 512, "steps": 20}
    weak, strong = (
        pixels(make("gen-pro", guidance=guidance, interval=1, seed=11, **body)[1]).astype(np.float32)
        for guidance in (1.5, 5)
    )
    assert np.abs(strong - weak).mean() > 3  # of 255: colours that are seen to be others
    assert (np.ptp(strong, axis=2) - np.ptp(weak, axis=2)).mean() > 3


@pytest.mark.slow
def test_edges_say_where_words_say_which_colours_and_thresholds_what_is_an_edge(make: Make) -> None:
    control = drawing(Shape("diamond", "black", place="top left"), background="white")
    body = {"prompt": "a green diamond on a yellow background", "seed": 11}
    _, edges = make("gen-pro-1.0-canny", control_image=image_base64(control), **body)
    assert faults(edges, Shape("diamond", "green", place="top left"), background="yellow") == []
    soft = Image.new("RGB", (96, 64), "teal")
    ImageDraw.Draw(soft).ellipse((20, 10, 60, 50), fill="orange")
    soft = image_base64(soft.filter(ImageFilter.GaussianBlur(1.2)))  # hard edges are above any threshold
    limits = {"canny_low_threshold": 500, "canny_high_threshold": 500}
    some, none = (make("gen-pro-1.0-canny", control_image=soft, steps=15, **body, **each)[1] for each in ({}, limits))
    assert some.tobytes() != none.tobytes()


def test_what_was_asked_for_appears_under_the_mask_and_nowhere_else(make: Make) -> None:
    square, mask = Shape("square", "red", place="left"), make_mask((512, 512), (280, 150, 489, 359))
    before = drawing(square, background="white")
    _, after = make(
        "gen-pro-1.0-fill", prompt="a blue circle", image=image_base64(before), mask=image_base64(mask), seed=11
    )
    assert faults(after, square, Shape("circle", "blue", None, "right"), background="white") == []
    assert np.abs(pixels(after) - pixels(before))[np.asarray(mask) < 128].max() <= 2


def test_erase_touches_nothing_but_the_widened_mask(make: Make, photo: Image.Image) -> None:
    mask = make_mask(photo.size, (185, 125, 265, 205))  # over the white square
    task, erased = make("gen-tools/erase-v1", image=image_base64(photo), mask=image_base64(mask), dilate_pixels=4)
    widened = cv2.dilate(np.asarray(mask), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9))) > 0
    assert np.array_equal(pixels(erased)[~widened], pixels(photo)[~widened])
    assert pixels(erased)[140:190, 200:250].mean() < 180, "the white square is still white"
    assert task["cost"] == 3


def test_outpainting_keeps_the_image_and_paints_around_it(make: Make, photo: Image.Image) -> None:
    body = {"input_image": image_base64(photo), "width": 480, "height": 320, "reference_offset_x": 100}
    results = [make("gen-tools/outpainting-v1", reference_offset_y=10, mode=mode, **body) for mode in ("fast", "high")]
    for _, extended in results:
        assert extended.size == (480, 320)
        assert np.array_equal(pixels(extended)[10:266, 100:420], pixels(photo))
    assert [task["cost"] for task, _ in results] == [4.5, 20]
    assert results[0][1].tobytes() != results[1][1].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["vto-v1", "vto-v2"])
def test_try_on_has_the_persons_size_and_looks_at_both(make: Make, photo: Image.Image, version: str) -> None:
    garments = [image_base64(Image.new("RGB", (200, 200), colour)) for colour in ("green", "red")]
    results = [make(f"gen-tools/{version}", person=image_base64(photo), garment=each) for each in garments]
    assert [image.size for _, image in results] == [photo.size] * 2
    assert results[0][1].tobytes() != results[1][1].tobytes()
    assert results[0][0]["result"]["prompt"].startswith("Put the garment from image 2 on the person from image 1")


def test_deblur_comes_closer_to_the_sharp_image(make: Make, photo: Image.Image) -> None:
    blurred = photo.filter(ImageFilter.GaussianBlur(2))
    _, sharpened = make("gen-tools/deblur-v1", image=image_base64(blurred))
    assert sharpened.size == photo.size
    before, after = (np.square(pixels(each) - pixels(photo)).mean() for each in (blurred, sharpened))
    assert after < 0.7 * before


def test_a_tuned_model_is_uploaded_used_and_gone(client: Client, make: Make, tmp_path: Path) -> None:
    weights = {"lora_A": torch.randn(4, 128), "lora_B": torch.randn(128, 4)}
    layer = "transformer.single_transformer_blocks.0.attn.to_q"
    safetensors.torch.save_file({f"{layer}.{name}.weight": w for name, w in weights.items()}, tmp_path / "tuned")
    finetune_id = client.upload_finetune(tmp_path / "tuned", KLEIN, "noise")["finetune_id"]
    assert [finetune["status"] for finetune in client.finetunes()] == ["Ready"]
    body: dict[str, Any] = {"prompt": "a red circle", "steps": 4, **SMALL}
    _, base = make(KLEIN, **body)
    off, on = (make(f"{KLEIN}-finetuned", finetune_id=finetune_id, finetune_strength=s, **body)[1] for s in (0, 2))
    assert off.tobytes() == base.tobytes() != on.tobytes()
    client.delete_finetune(finetune_id)
    assert client.finetunes() == []


def test_tasks_of_many_shapes_at_once(client: Client) -> None:
    bodies = [{"prompt": "p", "width": 64 + 16 * n, "height": 64, "steps": 1 + n} for n in range(12)]
    ids = [client.submit(KLEIN, body)["id"] for body in bodies]
    for task_id, body in zip(ids, bodies, strict=True):
        image = Image.open(io.BytesIO(client.fetch(outcome(client, task_id)["result"]["sample"])))
        assert image.size == (body["width"], body["height"])


def test_cancelling_stops_work_and_leaves_no_result(service: LocalService, client: Client) -> None:
    def was_cancelled(task_id: str) -> bool:
        try:
            return client.cancel(task_id)["status"] == "Error"
        except Refused:
            assert poll_result(client, task_id)["status"] == "Ready"
            return False

    ids = [client.submit(KLEIN, {"prompt": "p", "resolution": "1k", "steps": 16})["id"] for _ in range(24)]
    # The last first: on a busy machine some may be ready before they can be cancelled.
    cancelled = [task_id for task_id in reversed(ids) if was_cancelled(task_id)]
    assert ids[-1] in cancelled
    # Whatever comes next finds the engine free of them.
    assert outcome(client, client.submit(KLEIN, {"prompt": "p", "steps": 1, **SMALL})["id"])["status"] == "Ready"
    # Previews that were shown go when the task is swept, as inputs do.
    for task_id in cancelled:
        assert poll_result(client, task_id)["details"] == {"error": "Cancelled by the client"}
        files = (service.folder / "data" / "objects").glob(f"results/{task_id}/**/*.*")
        assert [file for file in files if not file.name.startswith("preview-")] == []


def test_an_event_stream_reaches_http_1_0(service: LocalService, client: Client) -> None:
    task_id = client.submit(KLEIN, {"prompt": "a star"} | SMALL)["id"]
    host, _, port = service.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"GET /v1/tasks/{task_id}/events HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        with connection.makefile(newline="") as answer:
            head, _, body = answer.read().partition("\r\n\r\n")
    assert "transfer-encoding" not in head.lower()
    assert body.startswith("event: ")
    assert "event: end\n" in body
