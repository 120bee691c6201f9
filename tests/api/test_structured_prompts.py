"""Prompts that end with a table of elements."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.client import Client, problems
from support.http_service import Service
from support.pictures import encoded, picture
from support.promises import promise
from support.worker import Worker

BOX = [10, 20, 300, 400]
MADE: dict[str, Any] = {"id": "cat_1", "bbox": BOX, "desc": "a cat"}
EDITED: dict[str, Any] = {"id": "cat_1", "from": "ref_image_0", "src_bbox": BOX, "tgt_bbox": BOX, "desc": "a cat"}
NEW: dict[str, Any] = {**EDITED, "from": None, "src_bbox": None}


def prompt(*rows: object) -> str:
    return f"<cat_1> in a room {json.dumps(rows)}"


def references(count: int) -> dict[str, Any]:
    return {"images": [encoded(picture())] * count} if count else {}


@promise(
    "Decided: structured prompts",
    "The text reaches the model unchanged; the parsed layout is also handed to pipelines that can use boxes.",
)
@pytest.mark.parametrize(
    ("text", "images"),
    [
        (prompt(MADE), 0),
        (prompt(MADE, {**MADE, "id": "dog_1", "bbox": [0, 0, 1000, 1000]}), 0),
        (prompt({**MADE, "desc": ""}), 0),
        (prompt(EDITED), 1),
        (prompt({**EDITED, "tgt_bbox": [0, 0, 1, 1]}), 1),
        (prompt({**EDITED, "tgt_bbox": None}), 1),
        (prompt(NEW), 1),
        (prompt(NEW), 0),
        (prompt({**EDITED, "from": "ref_image_1"}), 2),
        (prompt({**EDITED, "from": "<ref_image_1>"}), 2),
        (prompt({**EDITED, "from": "ref_image_9"}), 10),
    ],
)
def test_a_valid_table_reaches_the_model_unchanged(client: Client, worker: Worker, text: str, images: int) -> None:
    task_id = client.accepted(prompt=text, **references(images))
    assert worker.job(task_id)["prompt"] == text


@promise("Region entry", "Reference image name the element is taken from; null when it is newly described")
@pytest.mark.parametrize(
    ("source", "images"),
    [
        ("ref_image_0", 0),
        ("ref_image_1", 1),
        ("<ref_image_1>", 1),
        ("ref_image_5", 1),
        ("ref_image_10", 10),
        ("cat_1", 1),
        ("<ref_image_0", 1),
        ("", 1),
    ],
)
def test_an_element_comes_only_from_a_picture_that_was_sent(
    client: Client, service: Service, source: str, images: int
) -> None:
    with service.unchanged():
        response = client.submit(prompt=prompt({**EDITED, "from": source}), **references(images))
    assert problems(response) == [(["body", "prompt"], "layout")]
