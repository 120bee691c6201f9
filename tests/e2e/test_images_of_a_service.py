"""Images of every family of endpoints and tools show what the request asks for."""

from __future__ import annotations

import io
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
from support.polling import poll_result, wait_for_end
from support.scenes import Ground, Shape, ShapeScene

from serve_app.cli.service import Client

KLEIN = "gen-3-image-klein"
SMALL = {"width": 64, "height": 64}
SQUARE = {"aspect_ratio": "1:1", "resolution": "768sq", "steps": 4, "seed": 11}
Make = Callable[..., tuple[dict[str, Any], Image.Image]]


@pytest.fixture
def make(client: Client) -> Make:
    """Runs a request; returns the ready task and its image."""

    def make(endpoint: str, **body: Any) -> tuple[dict[str, Any], Image.Image]:
        task = wait_for_end(client, client.submit(endpoint, {"output_format": "png", "seed": 1} | body)["id"])
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


def find_faults(image: Image.Image, *shapes: Shape, background: str) -> list[str]:
    return ShapeScene(shapes, Ground(background)).faults(np.asarray(image.convert("RGB")))


def draw_scene(*shapes: Shape, background: str) -> Image.Image:
    return Image.fromarray(ShapeScene(shapes, Ground(background)).draw())


def make_mask(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    mask = Image.new("L", size, 0)
    ImageDraw.Draw(mask).rectangle(box, fill=255)
    return mask


@pytest.mark.parametrize(
    ("prompt", "shape", "background"),
    [
        ("a large blue circle on a yellow background", Shape("circle", "blue", "large"), "yellow"),
        (
            "a small black heart in the top right corner on a pink background",
            Shape("heart", "black", "small", "top right"),
            "pink",
        ),
    ],
)
def test_image_shows_the_prompt(make: Make, prompt: str, shape: Shape, background: str) -> None:
    assert find_faults(make(KLEIN, prompt=prompt, **SQUARE)[1], shape, background=background) == []


def test_edit_changes_the_colour_and_keeps_the_place(make: Make) -> None:
    _, first = make(KLEIN, prompt="a large red circle on the left on a white background", **SQUARE)
    _, second = make(KLEIN, prompt="make the circle blue", images=[image_base64(first)], **SQUARE)
    assert find_faults(second, Shape("circle", "blue", "large", "left"), background="white") == []


def test_edit_keeps_the_first_references_size_and_uses_both(make: Make) -> None:
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
def test_every_format_has_the_exact_size(make: Make, output_format: str) -> None:
    task, image = make(KLEIN, prompt="x", width=130, height=77, steps=2, output_format=output_format)
    assert (image.format, image.size) == (output_format.upper(), (130, 77))
    assert task["result"]["sample"].split("?")[0].endswith(f".{output_format}")
    assert (task["progress"], task["cost"]) == (1.0, 0.9)


def test_prompt_decides_the_ratio(make: Make) -> None:
    assert make(KLEIN, prompt="a square image of a lighthouse", steps=1)[1].size == (1024, 1024)


def test_reported_seed_reproduces_the_image(make: Make) -> None:
    first, a = make(KLEIN, prompt="x", steps=2, seed=None, **SMALL)
    _, b = make(KLEIN, prompt="x", steps=2, seed=first["result"]["seed"], **SMALL)
    _, c = make(KLEIN, prompt="x", steps=2, seed=first["result"]["seed"] ^ 1, **SMALL)
    assert np.abs(pixels(a) - pixels(b)).max() <= 1
    assert a.tobytes() != c.tobytes()


@pytest.mark.slow
def test_gen_2_max_rewrites_prompts_and_cuts_out_the_subject(make: Make) -> None:
    body = {"prompt": "a large red circle on a white background", "width": 512, "height": 512, "seed": 3}
    rewritten, cut = make("gen-2-max", transparent_bg=True, **body)
    plain, _ = make("gen-2-max", disable_pup=True, **body)
    assert rewritten["result"]["prompt"].startswith(body["prompt"] + ", ")
    assert plain["result"]["prompt"] == body["prompt"]
    red = (pixels(cut)[..., 0] - pixels(cut)[..., 1:].max(axis=2)) > 60
    subject = np.asarray(cut)[..., 3] > 127
    assert (red & subject).sum() / (red | subject).sum() >= 0.9


@pytest.mark.slow
def test_fill_changes_only_the_masked_part(make: Make) -> None:
    square, mask = Shape("square", "red", place="left"), make_mask((512, 512), (280, 150, 489, 359))
    before = draw_scene(square, background="white")
    _, after = make(
        "gen-pro-1.0-fill", prompt="a blue circle", image=image_base64(before), mask=image_base64(mask), seed=11
    )
    assert find_faults(after, square, Shape("circle", "blue", None, "right"), background="white") == []
    assert np.abs(pixels(after) - pixels(before))[np.asarray(mask) < 128].max() <= 2


@pytest.mark.slow
def test_erase_changes_only_the_dilated_mask(make: Make, photo: Image.Image) -> None:
    mask = make_mask(photo.size, (185, 125, 265, 205))  # over the white square
    task, erased = make("gen-tools/erase-v1", image=image_base64(photo), mask=image_base64(mask), dilate_pixels=4)
    widened = cv2.dilate(np.asarray(mask), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9))) > 0
    assert np.array_equal(pixels(erased)[~widened], pixels(photo)[~widened])
    assert pixels(erased)[140:190, 200:250].mean() < 180, "the white square is still white"
    assert task["cost"] == 3


@pytest.mark.slow
def test_outpainting_keeps_the_image(make: Make, photo: Image.Image) -> None:
    body = {"input_image": image_base64(photo), "width": 480, "height": 320, "reference_offset_x": 100}
    results = [make("gen-tools/outpainting-v1", reference_offset_y=10, mode=mode, **body) for mode in ("fast", "high")]
    for _, extended in results:
        assert extended.size == (480, 320)
        assert np.array_equal(pixels(extended)[10:266, 100:420], pixels(photo))
    assert [task["cost"] for task, _ in results] == [4.5, 20]
    assert results[0][1].tobytes() != results[1][1].tobytes()


@pytest.mark.slow
def test_deblurred_image_is_closer_to_the_sharp_one(make: Make, photo: Image.Image) -> None:
    blurred = photo.filter(ImageFilter.GaussianBlur(2))
    _, sharpened = make("gen-tools/deblur-v1", image=image_base64(blurred))
    assert sharpened.size == photo.size
    before, after = (np.square(pixels(each) - pixels(photo)).mean() for each in (blurred, sharpened))
    assert after < 0.7 * before


@pytest.mark.slow
def test_adapter_is_uploaded_used_and_deleted(client: Client, make: Make, tmp_path: Path) -> None:
    weights = {"lora_A": torch.randn(4, 128), "lora_B": torch.randn(128, 4)}
    layer = "transformer.single_transformer_blocks.0.attn.to_q"
    safetensors.torch.save_file({f"{layer}.{name}.weight": w for name, w in weights.items()}, tmp_path / "tuned")
    finetune_id = client.upload_finetune(tmp_path / "tuned", KLEIN, "noise")["finetune_id"]
    statuses = {finetune["finetune_id"]: finetune["status"] for finetune in client.finetunes()}
    assert statuses[finetune_id] == "Ready"
    body: dict[str, Any] = {"prompt": "a red circle", "steps": 4, **SMALL}
    _, base = make(KLEIN, **body)
    off, on = (make(f"{KLEIN}-finetuned", finetune_id=finetune_id, finetune_strength=s, **body)[1] for s in (0, 2))
    assert off.tobytes() == base.tobytes() != on.tobytes()
    client.delete_finetune(finetune_id)
    assert finetune_id not in {finetune["finetune_id"] for finetune in client.finetunes()}


def test_tasks_of_different_sizes_run_at_once(client: Client) -> None:
    bodies = [{"prompt": "p", "width": 64 + 16 * n, "height": 64, "steps": 1 + n} for n in range(12)]
    ids = [client.submit(KLEIN, body)["id"] for body in bodies]
    for task_id, body in zip(ids, bodies, strict=True):
        image = Image.open(io.BytesIO(client.fetch(wait_for_end(client, task_id)["result"]["sample"])))
        assert image.size == (body["width"], body["height"])


def test_cancelled_task_leaves_no_result(service: LocalService, client: Client) -> None:
    def was_cancelled(task_id: str) -> bool:
        try:
            return client.cancel(task_id)["status"] == "Error"
        except Refused:
            assert poll_result(client, task_id)["status"] == "Ready"
            return False

    ids = [client.submit(KLEIN, {"prompt": "p", "resolution": "1k", "steps": 16})["id"] for _ in range(24)]
    # The last first: on a busy machine some are ready before they can be cancelled.
    cancelled = [task_id for task_id in reversed(ids) if was_cancelled(task_id)]
    assert ids[-1] in cancelled
    # The engine is free for the next task.
    assert wait_for_end(client, client.submit(KLEIN, {"prompt": "p", "steps": 1, **SMALL})["id"])["status"] == "Ready"
    # Previews and inputs are deleted with the task's record.
    for task_id in cancelled:
        assert poll_result(client, task_id)["details"] == {"error": "Cancelled by the client"}
        files = (service.folder / "data" / "objects").glob(f"results/{task_id}/**/*.*")
        assert [file for file in files if not file.name.startswith("preview-")] == []
