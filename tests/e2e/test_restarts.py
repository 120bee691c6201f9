"""Stops and kills of the whole service, or a part of it, lose no task and leave no process."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end
from support.redis_process import until

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

QUEUE = "flux3-klein"
TASKS = 8
BODY = {"prompt": "a green square", "width": 256, "height": 256, "steps": 16}


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
    return {sample.labels["event"]: int(sample.value) for sample in counted.samples if sample.labels["model"] == QUEUE}


def test_ctrl_c_and_kill_lose_no_task(breakable: LocalService) -> None:
    before = read_counters(breakable)
    with breakable.client() as client:
        ids = [client.submit("gen-3-image-klein", BODY | {"seed": seed})["id"] for seed in range(TASKS)]
        poll_until(client, ids[0], "Ready")  # others are running or waiting
    breakable.stop()
    assert breakable.processes() == []
    breakable.start()
    breakable.kill()
    until(lambda: not breakable.processes())
    breakable.start()
    with breakable.client() as client:
        for task_id in ids:
            task = poll_until(client, task_id, "Ready", "Error")
            assert task["status"] == "Ready", task
            assert client.fetch(task["result"]["sample"])[:2] == b"\xff\xd8", "a JPEG file"
    after = read_counters(breakable)
    gained = [after.get(name, 0) - before.get(name, 0) for name in ("accepted", "ready", "error")]
    assert gained == [TASKS, TASKS, 0]


def test_shared_text_encoder_is_restarted_after_a_kill(breakable: LocalService) -> None:
    def generate(endpoint: str, prompt: str) -> dict[str, Any]:
        body = {"prompt": prompt, "width": 64, "height": 64, "seed": 3, "output_format": "png", "disable_pup": True}
        task = wait_for_end(client, client.submit(endpoint, body)["id"])
        assert task["status"] == "Ready", task
        return task

    with breakable.client() as client:
        images = [generate(endpoint, "a red star on a white background") for endpoint in ("gen-2-pro", "gen-2-max")]
        first, second = (client.fetch(task["result"]["sample"]) for task in images)
        assert first == second, "one checkpoint, one seed"
        breakable.kill_one("TextEncoder-klein")
        generate("gen-2-pro", "a blue circle on a white background")
