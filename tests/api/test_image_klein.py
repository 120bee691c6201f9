"""Fields of `POST /v1/gen-3-image-klein`: sizes, layouts, and the list of problems."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.http_client import Client, problems
from support.http_service import Service
from support.images import image_file, to_base64
from support.promises import promise
from support.worker import Worker

from serve_app.dispatcher.attempt import close_ratio
from serve_app.tasks.payload import TaskPayload


def test_every_problem_is_listed(client: Client) -> None:
    response = client.submit(prompt="", steps=17, images=["", "x", 3], more=1)
    assert problems(response) == [
        (["body", "prompt"], "string_too_short"),
        (["body", "images", "0"], "string_too_short"),
        (["body", "images", "2"], "string_type"),
        (["body", "steps"], "less_than_equal"),
        (["body", "more"], "extra_forbidden"),
    ]


@pytest.mark.parametrize(
    ("tier", "ratio", "size"),
    [
        ("1k", "16:9", (1360, 768)),
        ("4k", "21:9", (6256, 2688)),
        ("4k", "9:21", (2688, 6256)),
        ("768sq", "1:1", (768, 768)),
    ],
)
def test_tier_and_ratio_decide_the_size(
    client: Client, worker: Worker, tier: str, ratio: str, size: tuple[int, int]
) -> None:
    job = worker.job(client.create_task(resolution=tier, aspect_ratio=ratio))
    assert (job["width"], job["height"]) == size


@promise(
    "1. gen-3-image-klein",
    "for text-to-image a ratio chosen from the prompt (prompt rewrite, else ratio keywords, else 16:9)",
)
@pytest.mark.parametrize(
    ("prompt", "ratio", "size"),
    [
        ("a cat, square format", "9:16", (768, 1360)),
        ("a cat, square format", "", (1024, 1024)),
        ("a cat", "", (1360, 768)),
    ],
)
def test_prompt_chooses_the_ratio_at_the_same_price(
    client: Client, worker: Worker, prompt: str, ratio: str, size: tuple[int, int]
) -> None:
    submitted = client.submit(prompt=prompt).json()
    lease = worker.take(submitted["id"])
    request = close_ratio(TaskPayload.decode(lease.payload).request, ratio)
    assert (request.width, request.height) == size
    assert submitted["cost"] == 0.9


@promise("1. gen-3-image-klein", "First item is the image being edited and sets the default output size")
@pytest.mark.parametrize(
    ("body", "size"),
    [
        ({}, (300, 200)),
        ({"aspect_ratio": "1:1"}, (768, 768)),
        ({"width": 100, "height": 90, "aspect_ratio": "1:1", "resolution": "4k"}, (100, 90)),
    ],
)
def test_first_reference_sets_the_size_of_an_edit(
    client: Client, worker: Worker, body: dict[str, Any], size: tuple[int, int]
) -> None:
    images = [to_base64(image_file(300, 200)), to_base64(image_file(64, 640))]
    job = worker.job(client.create_task(images=images, **body))
    assert (job["width"], job["height"]) == size


BOX = [10, 20, 300, 400]
REFERENCE = to_base64(image_file())


def make_prompt(source: str) -> str:
    """Returns a prompt with a layout of one element of an image."""
    row = {"id": "cat_1", "from": source, "src_bbox": BOX, "tgt_bbox": BOX, "desc": "a cat"}
    return f"<cat_1> in a room {json.dumps([row])}"


@promise(
    "Decided: structured prompts",
    "The text reaches the model unchanged; the parsed layout is also handed to pipelines that can use boxes.",
)
def test_layout_reaches_the_model_beside_the_text(client: Client, worker: Worker) -> None:
    prompt = make_prompt("<ref_image_9>")
    job = worker.job(client.create_task(prompt=prompt, images=[REFERENCE] * 10))
    assert job["prompt"] == prompt
    assert [(row.name, row.source) for row in job["layout"]] == [("cat_1", "ref_image_9")]


@promise("Region entry", "Reference image name the element is taken from; null when it is newly described")
@pytest.mark.parametrize(
    ("source", "images"),
    [
        ("ref_image_0", 0),
        ("<ref_image_1>", 1),
        ("ref_image_10", 10),
        ("<ref_image_0", 1),
        ("", 1),
    ],
)
def test_element_of_a_missing_image_is_rejected(client: Client, service: Service, source: str, images: int) -> None:
    references = {"images": [REFERENCE] * images} if images else {}
    with service.assert_unchanged():
        response = client.submit(prompt=make_prompt(source), **references)
    assert problems(response) == [(["body", "prompt"], "layout")]
