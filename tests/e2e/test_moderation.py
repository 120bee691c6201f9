"""What the moderator refuses, over HTTP: requests by their words and pictures, results by what they show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forbidden_picture import forbidden
from PIL import Image
from support.local_service import LocalService
from support.outcomes import outcome
from support.pictures import sent

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

CIRCLE = {"prompt": "a red circle", "aspect_ratio": "1:1", "resolution": "768sq", "steps": 1}
COVERED = (slice(16, 240), slice(136, 376))
"""A plain part of the forbidden picture."""


@pytest.fixture
def client(breakable: LocalService) -> Iterator[Client]:
    with breakable.client() as client:
        yield client


def ended(client: Client, path: str, **body: Any) -> dict[str, Any]:
    return outcome(client, client.submit(path, body)["id"])


def stored(service: LocalService, task: dict[str, Any], place: str) -> list[Path]:
    folder = service.folder / "data" / "objects" / place / task["id"]
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_harmless_passes(client: Client, breakable: LocalService) -> None:
    task = ended(client, "gen-3-image-klein", **CIRCLE)
    assert task["status"] == "Ready"
    assert client.fetch(task["result"]["sample"])
    assert not stored(breakable, task, "unjudged")


@pytest.mark.parametrize("prompt", ["a very bloody murder scene", "a v3ry b l o o d y murd3r scene"])
def test_a_refused_prompt_costs_nothing_and_makes_nothing(client: Client, breakable: LocalService, prompt: str) -> None:
    before = client.credits()
    task = ended(client, "gen-3-image-klein", **CIRCLE | {"prompt": prompt})
    assert task["status"] == "Request Moderated"
    assert task["details"] == {"Moderation Reasons": ["violence"]}
    assert (task["result"], task.get("cost")) == (None, None)
    assert client.credits() == before
    assert not stored(breakable, task, "results") + stored(breakable, task, "unjudged")


def test_the_tolerance_decides(client: Client) -> None:
    task = ended(client, "gen-3-image-klein", **CIRCLE | {"prompt": "a knight with a bloody sword"})
    strict = ended(client, "gen-3-image-klein", **CIRCLE | {"prompt": task["result"]["prompt"], "safety_tolerance": 0})
    assert strict["status"] == "Request Moderated"


def test_a_picture_that_is_sent_is_judged_too(client: Client) -> None:
    task = ended(client, "gen-3-image-klein", **CIRCLE | {"images": [sent(Image.fromarray(forbidden()))]})
    assert task["status"] == "Request Moderated"
    assert task["details"] == {"Moderation Reasons": ["violence"]}


def test_a_result_that_is_refused_is_nowhere(client: Client, breakable: LocalService) -> None:
    covered = forbidden()
    covered[COVERED] = np.where(np.indices((224, 240)).sum(axis=0)[..., None] // 56 % 2, 255, 0)
    mask = np.zeros(covered.shape[:2], np.uint8)
    mask[COVERED] = 255
    before = client.credits()
    body = {"image": sent(Image.fromarray(covered)), "mask": sent(Image.fromarray(mask)), "dilate_pixels": 0}
    task = ended(client, "gen-tools/erase-v1", **body)
    assert task["status"] == "Content Moderated"
    assert task["details"] == {"Moderation Reasons": ["violence"]}
    assert (task["result"], task["preview"]) == (None, None)
    assert client.credits() == before
    assert not stored(breakable, task, "results") + stored(breakable, task, "unjudged")


def test_tasks_wait_for_a_moderator_that_died(client: Client, breakable: LocalService) -> None:
    before = {process.pid for process in breakable.processes("ServeReplica:gen:Moderator")}
    breakable.kill_one("ServeReplica:gen:Moderator")
    harmless = client.submit("gen-3-image-klein", CIRCLE)["id"]
    harmful = client.submit("gen-3-image-klein", CIRCLE | {"prompt": "a very bloody murder scene"})["id"]
    assert outcome(client, harmless)["status"] == "Ready"
    assert outcome(client, harmful)["status"] == "Request Moderated"
    assert before.isdisjoint(process.pid for process in breakable.processes("ServeReplica:gen:Moderator"))
