"""Moderation of prompts, input images and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from forbidden_image import draw_forbidden_image
from PIL import Image
from support.images import image_base64
from support.local_service import LocalService
from support.polling import wait_for_end

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

CIRCLE = {"prompt": "a red circle", "aspect_ratio": "1:1", "resolution": "768sq", "steps": 1}
COVERED = (slice(16, 240), slice(136, 376))
"""A part of the forbidden image without details."""


@pytest.fixture
def client(breakable: LocalService) -> Iterator[Client]:
    with breakable.client() as client:
        yield client


def run_task(client: Client, path: str = "gen-3-image-klein", **body: Any) -> dict[str, Any]:
    return wait_for_end(client, client.submit(path, body or CIRCLE)["id"])


def assert_moderated(service: LocalService, task: dict[str, Any], status: str) -> None:
    """Checks that a moderated task has no result, cost or files."""
    assert (task["status"], task["details"]) == (status, {"Moderation Reasons": ["violence"]})
    assert (task["result"], task.get("preview"), task.get("cost")) == (None, None, None)
    objects = service.folder / "data" / "objects"
    assert not (objects / "results" / task["id"]).exists()


@pytest.mark.parametrize("prompt", ["a very bloody murder scene", "a v3ry b l o o d y murd3r scene"])
def test_moderated_prompt_costs_nothing(client: Client, breakable: LocalService, prompt: str) -> None:
    before = client.credits()
    assert_moderated(breakable, run_task(client, **CIRCLE | {"prompt": prompt}), "Request Moderated")
    assert client.credits() == before


def test_moderated_result_is_deleted_and_refunded(client: Client, breakable: LocalService) -> None:
    covered = draw_forbidden_image()
    covered[COVERED] = np.where(np.indices((224, 240)).sum(axis=0)[..., None] // 56 % 2, 255, 0)
    mask = np.zeros(covered.shape[:2], np.uint8)
    mask[COVERED] = 255
    before = client.credits()
    body = {
        "image": image_base64(Image.fromarray(covered)),
        "mask": image_base64(Image.fromarray(mask)),
        "dilate_pixels": 0,
    }
    assert_moderated(breakable, run_task(client, "gen-tools/erase-v1", **body), "Content Moderated")
    assert client.credits() == before


def test_tasks_wait_for_a_killed_moderator(client: Client, breakable: LocalService) -> None:
    before = {process.pid for process in breakable.processes("ServeReplica:gen:Moderator")}
    breakable.kill_one("ServeReplica:gen:Moderator")
    harmless = client.submit("gen-3-image-klein", CIRCLE)["id"]
    harmful = client.submit("gen-3-image-klein", CIRCLE | {"prompt": "a very bloody murder scene"})["id"]
    assert wait_for_end(client, harmless)["status"] == "Ready"
    assert wait_for_end(client, harmful)["status"] == "Request Moderated"
    assert before.isdisjoint(process.pid for process in breakable.processes("ServeReplica:gen:Moderator"))
