"""Every field of `POST /v1/gen-3-image-klein`: what is taken, what it means, what is refused and how."""

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


def test_every_problem_is_named_at_once(client: Client) -> None:
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
def test_published_sizes(client: Client, worker: Worker, tier: str, ratio: str, size: tuple[int, int]) -> None:
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
        ("a giraffe, portrait orientation", "", (832, 1248)),
        ("a cat", "", (1360, 768)),
    ],
)
def test_with_auto_the_prompt_chooses_the_ratio(
    client: Client, worker: Worker, prompt: str, ratio: str, size: tuple[int, int]
) -> None:
    submitted = client.submit(prompt=prompt).json()
    lease = worker.take(submitted["id"])
    request = close_ratio(TaskPayload.decode(lease.payload).request, ratio)
    assert (request.width, request.height) == size
    assert submitted["cost"] == 0.9, "the price does not depend on it"


@promise("1. gen-3-image-klein", "First item is the image being edited and sets the default output size")
@pytest.mark.parametrize(
    ("body", "size"),
    [
        ({}, (300, 200)),
        ({"resolution": "1k"}, (1254, 836)),
        ({"aspect_ratio": "1:1"}, (768, 768)),
        ({"aspect_ratio": "1:1", "resolution": "1.5k"}, (1536, 1536)),
        ({"width": 100, "height": 90, "aspect_ratio": "1:1", "resolution": "4k"}, (100, 90)),
    ],
)
def test_the_first_reference_sets_the_size_of_an_edit(
    client: Client, worker: Worker, body: dict[str, Any], size: tuple[int, int]
) -> None:
    images = [to_base64(image_file(300, 200)), to_base64(image_file(64, 640))]
    job = worker.job(client.create_task(images=images, **body))
    assert (job["width"], job["height"]) == size


@promise(
    "Errors",
    "On the image endpoint with `safety_tolerance` above the approved level, HTTP 422 is returned together "
    "with the approved levels.",
)
@pytest.mark.parametrize("level", [6, 7])
def test_a_level_that_is_not_approved_is_refused_with_those_that_are(
    client: Client, service: Service, level: int
) -> None:
    with service.assert_unchanged():
        response = client.submit(safety_tolerance=level)
    assert problems(response) == [(["body", "safety_tolerance"], "safety_tolerance_not_approved")]
    (entry,) = response.json()["detail"]
    assert entry["ctx"] == {"approved": [0, 1, 2, 3, 4, 5]}
    assert "[0, 1, 2, 3, 4, 5]" in entry["msg"]


BOX = [10, 20, 300, 400]
ENTRY: dict[str, Any] = {"id": "cat_1", "bbox": BOX, "desc": "a cat"}
EDITED: dict[str, Any] = {"id": "cat_1", "from": "ref_image_0", "src_bbox": BOX, "tgt_bbox": BOX, "desc": "a cat"}
NEW: dict[str, Any] = {**EDITED, "from": None, "src_bbox": None}


def prompt(*rows: object) -> str:
    return f"<cat_1> in a room {json.dumps(rows)}"


def references(count: int) -> dict[str, Any]:
    return {"images": [to_base64(image_file())] * count} if count else {}


@promise(
    "Decided: structured prompts",
    "The text reaches the model unchanged; the parsed layout is also handed to pipelines that can use boxes.",
)
@pytest.mark.parametrize(
    ("text", "images"),
    [
        (prompt(ENTRY), 0),
        (prompt(ENTRY, {**ENTRY, "id": "dog_1", "bbox": [0, 0, 1000, 1000]}), 0),
        (prompt(EDITED), 1),
        (prompt({**EDITED, "tgt_bbox": None}), 1),
        (prompt(NEW), 1),
        (prompt(NEW), 0),
        (prompt({**EDITED, "from": "<ref_image_1>"}), 2),
        (prompt({**EDITED, "from": "ref_image_9"}), 10),
    ],
)
def test_a_valid_table_reaches_the_model_unchanged(client: Client, worker: Worker, text: str, images: int) -> None:
    task_id = client.create_task(prompt=text, **references(images))
    assert worker.job(task_id)["prompt"] == text


@promise("Region entry", "Reference image name the element is taken from; null when it is newly described")
@pytest.mark.parametrize(
    ("source", "images"),
    [
        ("ref_image_0", 0),
        ("ref_image_1", 1),
        ("<ref_image_1>", 1),
        ("ref_image_10", 10),
        ("<ref_image_0", 1),
        ("", 1),
    ],
)
def test_an_element_comes_only_from_an_image_that_was_sent(
    client: Client, service: Service, source: str, images: int
) -> None:
    with service.assert_unchanged():
        response = client.submit(prompt=prompt({**EDITED, "from": source}), **references(images))
    assert problems(response) == [(["body", "prompt"], "layout")]
