"""What the moderator refuses, over HTTP: requests by their words and pictures, results by what they show."""

from __future__ import annotations

from collections.abc import Iterator
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


def ended(client: Client, path: str = "gen-3-image-klein", **body: Any) -> dict[str, Any]:
    return outcome(client, client.submit(path, body or CIRCLE)["id"])


def assert_refused(service: LocalService, task: dict[str, Any], status: str) -> None:
    """It cost nothing, and left nothing."""
    assert (task["status"], task["details"]) == (status, {"Moderation Reasons": ["violence"]})
    assert (task["result"], task.get("preview"), task.get("cost")) == (None, None, None)
    objects = service.folder / "data" / "objects"
    left = [file for place in ("results", "unmoderated") for file in (objects / place / task["id"]).rglob("*")]
    assert [file for file in left if file.is_file()] == []


@pytest.mark.parametrize("prompt", ["a very bloody murder scene", "a v3ry b l o o d y murd3r scene"])
def test_a_refused_prompt_costs_nothing_and_makes_nothing(client: Client, breakable: LocalService, prompt: str) -> None:
    before = client.credits()
    assert_refused(breakable, ended(client, **CIRCLE | {"prompt": prompt}), "Request Moderated")
    assert client.credits() == before


def test_the_tolerance_decides(client: Client) -> None:
    body = CIRCLE | {"prompt": "a knight with a bloody sword"}
    assert ended(client, **body)["status"] == "Ready"
    assert ended(client, **body, safety_tolerance=0)["status"] == "Request Moderated"


def test_a_picture_that_is_sent_is_moderated_too(client: Client, breakable: LocalService) -> None:
    task = ended(client, **CIRCLE, images=[sent(Image.fromarray(forbidden()))])
    assert_refused(breakable, task, "Request Moderated")


def test_a_result_that_is_refused_is_nowhere(client: Client, breakable: LocalService) -> None:
    covered = forbidden()
    covered[COVERED] = np.where(np.indices((224, 240)).sum(axis=0)[..., None] // 56 % 2, 255, 0)
    mask = np.zeros(covered.shape[:2], np.uint8)
    mask[COVERED] = 255
    before = client.credits()
    body = {"image": sent(Image.fromarray(covered)), "mask": sent(Image.fromarray(mask)), "dilate_pixels": 0}
    assert_refused(breakable, ended(client, "gen-tools/erase-v1", **body), "Content Moderated")
    assert client.credits() == before


def test_tasks_wait_for_a_moderator_that_died(client: Client, breakable: LocalService) -> None:
    before = {process.pid for process in breakable.processes("ServeReplica:gen:Moderator")}
    breakable.kill_one("ServeReplica:gen:Moderator")
    harmless = client.submit("gen-3-image-klein", CIRCLE)["id"]
    harmful = client.submit("gen-3-image-klein", CIRCLE | {"prompt": "a very bloody murder scene"})["id"]
    assert outcome(client, harmless)["status"] == "Ready"
    assert outcome(client, harmful)["status"] == "Request Moderated"
    assert before.isdisjoint(process.pid for process in breakable.processes("ServeReplica:gen:Moderator"))
