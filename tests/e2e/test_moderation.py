"""What the moderator refuses, over HTTP: requests by their words and images, results by what they show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from forbidden_image import forbidden
from PIL import Image
from support.images import image_base64
from support.local_service import LocalService
from support.polling import outcome

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

CIRCLE = {"prompt": "a red circle", "aspect_ratio": "1:1", "resolution": "768sq", "steps": 1}
COVERED = (slice(16, 240), slice(136, 376))
"""A plain part of the forbidden image."""


@pytest.fixture
def client(breakable: LocalService) -> Iterator[Client]:
    with breakable.client() as client:
        yield client


def run_task(client: Client, path: str = "gen-3-image-klein", **body: Any) -> dict[str, Any]:
    return outcome(client, client.submit(path, body or CIRCLE)["id"])


def assert_refused(service: LocalService, task: dict[str, Any], status: str) -> None:
    """It cost nothing, and left nothing."""
    assert (task["status"], task["details"]) == (status, {"Moderation Reasons": ["violence"]})
    assert (task["result"], task.get("preview"), task.get("cost")) == (None, None, None)
    objects = service.folder / "data" / "objects"
    assert not (objects / "results" / task["id"]).exists()


@pytest.mark.parametrize("prompt", ["a very bloody murder scene", "a v3ry b l o o d y murd3r scene"])
def test_a_refused_prompt_costs_nothing_and_makes_nothing(client: Client, breakable: LocalService, prompt: str) -> None:
    before = client.credits()
    assert_refused(breakable, run_task(client, **CIRCLE | {"prompt": prompt}), "Request Moderated")
    assert client.credits() == before


def test_the_tolerance_decides(client: Client) -> None:
    body = CIRCLE | {"prompt": "a knight with a bloody sword"}
    assert run_task(client, **body)["status"] == "Ready"
    assert run_task(client, **body, safety_tolerance=0)["status"] == "Request Moderated"


def test_an_image_that_is_sent_is_moderated_too(client: Client, breakable: LocalService) -> None:
    task = run_task(client, **CIRCLE, images=[image_base64(Image.fromarray(forbidden()))])
    assert_refused(breakable, task, "Request Moderated")


def test_a_result_that_is_refused_is_nowhere(client: Client, breakable: LocalService) -> None:
    covered = forbidden()
    covered[COVERED] = np.where(np.indices((224, 240)).sum(axis=0)[..., None] // 56 % 2, 255, 0)
    mask = np.zeros(covered.shape[:2], np.uint8)
    mask[COVERED] = 255
    before = client.credits()
    body = {
        "image": image_base64(Image.fromarray(covered)),
        "mask": image_base64(Image.fromarray(mask)),
        "dilate_pixels": 0,
    }
    assert_refused(breakable, run_task(client, "gen-tools/erase-v1", **body), "Content Moderated")
    assert client.credits() == before


def test_tasks_wait_for_a_moderator_that_died(client: Client, breakable: LocalService) -> None:
    before = {process.pid for process in breakable.processes("ServeReplica:gen:Moderator")}
    breakable.kill_one("ServeReplica:gen:Moderator")
    harmless = client.submit("gen-3-image-klein", CIRCLE)["id"]
    harmful = client.submit("gen-3-image-klein", CIRCLE | {"prompt": "a very bloody murder scene"})["id"]
    assert outcome(client, harmless)["status"] == "Ready"
    assert outcome(client, harmful)["status"] == "Request Moderated"
    assert before.isdisjoint(process.pid for process in breakable.processes("ServeReplica:gen:Moderator"))
