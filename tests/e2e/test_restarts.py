"""Stops and kills of the whole service, and its moderation."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from support.images import image_base64
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end
from support.redis_process import until

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

KLEIN, MODEL = "gen-3-image-klein", "flux3-klein"
TASKS = 8
BODY = {"prompt": "a green square", "width": 256, "height": 256, "steps": 16}
VIOLENT = BODY | {"prompt": "a very bloody murder scene"}
COVERED = (slice(16, 240), slice(136, 376))
"""A part of the forbidden image without details."""


def poll_until(client: Client, task_id: str, *statuses: str) -> dict[str, Any]:
    """Polls until the task has one of the statuses; errors of polls are ignored."""
    polls: list[dict[str, Any]] = []

    def has_status() -> bool:
        with contextlib.suppress(Exception):
            polls.append(poll_result(client, task_id, wait=1))
        return bool(polls) and polls[-1]["status"] in statuses

    until(has_status)
    return polls[-1]


def read_counters(service: LocalService) -> dict[str, int]:
    """Returns the task counters of the model under test."""
    text = httpx2.get(f"http://127.0.0.1:{service.metrics_port}/metrics", timeout=60).text
    [counted] = [family for family in text_string_to_metric_families(text) if family.name == "gen_task_events"]
    return {sample.labels["event"]: int(sample.value) for sample in counted.samples if sample.labels["model"] == MODEL}


def test_ctrl_c_and_kill_lose_no_task(service: LocalService) -> None:
    before = read_counters(service)
    with service.client() as client:
        ids = [client.submit(KLEIN, BODY | {"seed": seed})["id"] for seed in range(TASKS)]
        poll_until(client, ids[0], "Ready")  # others are running or waiting
    service.stop()
    assert service.processes() == []
    service.start()
    service.kill()
    until(lambda: not service.processes())
    service.start()
    with service.client() as client:
        for task_id in ids:
            task = poll_until(client, task_id, "Ready", "Error")
            assert task["status"] == "Ready", task
            assert client.fetch(task["result"]["sample"])[:2] == b"\xff\xd8", "a JPEG file"
    after = read_counters(service)
    gained = [after.get(name, 0) - before.get(name, 0) for name in ("accepted", "ready", "error")]
    assert gained == [TASKS, TASKS, 0]


def assert_moderated(service: LocalService, client: Client, task_id: str, status: str) -> None:
    """Checks that a moderated task has no result, cost or files."""
    task = wait_for_end(client, task_id)
    assert (task["status"], task["details"]) == (status, {"Moderation Reasons": ["violence"]})
    assert (task["result"], task.get("preview"), task.get("cost")) == (None, None, None)
    assert not (service.folder / "data" / "objects" / "results" / task["id"]).exists()


def test_moderated_tasks_cost_nothing_and_leave_no_files(
    client: Client, service: LocalService, forbidden_image: npt.NDArray[np.uint8]
) -> None:
    before = client.credits()
    assert_moderated(service, client, client.submit(KLEIN, VIOLENT)["id"], "Request Moderated")
    covered = forbidden_image.copy()
    covered[COVERED] = np.where(np.indices((224, 240)).sum(axis=0)[..., None] // 56 % 2, 255, 0)
    mask = np.zeros(covered.shape[:2], np.uint8)
    mask[COVERED] = 255
    image, hole = (image_base64(Image.fromarray(each)) for each in (covered, mask))
    erased = client.submit("gen-tools/erase-v1", {"image": image, "mask": hole, "dilate_pixels": 0})["id"]
    assert_moderated(service, client, erased, "Content Moderated")
    assert client.credits() == before
