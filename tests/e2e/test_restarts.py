"""Stopping the whole service, in order or not, loses nothing and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.local_service import LocalService
from support.outcomes import polled

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

LANE = "flux3-klein"
TASKS = 8
BODY = {"prompt": "a green square", "width": 256, "height": 256, "steps": 16}
PATIENCE_S = 120


def submit_all(client: Client) -> list[str]:
    return [client.submit("gen-3-image-klein", BODY | {"seed": seed})["id"] for seed in range(TASKS)]


def poll(client: Client, task_id: str) -> dict[str, object]:
    """One answer, however often the way there breaks down meanwhile."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return polled(client, task_id, wait=1)
        except Exception:
            if time.monotonic() > give_up:
                raise


def wait_until_under_way(client: Client, ids: list[str]) -> None:
    """Until the first task is ready, so that others are being worked on and some still wait."""
    assert poll_until(client, ids[0], lambda task: task["status"] == "Ready")["status"] == "Ready"


def poll_until(client: Client, task_id: str, reached: Callable[[dict[str, object]], bool]) -> dict[str, object]:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        task = poll(client, task_id)
        if reached(task):
            return task
        assert time.monotonic() < give_up, task


def events(service: LocalService) -> dict[str, int]:
    """The service's own counters of the model under test."""
    text = httpx2.get(f"http://127.0.0.1:{service.metrics_port}/metrics", timeout=60).text
    [counted] = [family for family in text_string_to_metric_families(text) if family.name == "gen_task_events"]
    return {sample.labels["event"]: int(sample.value) for sample in counted.samples if sample.labels["lane"] == LANE}


def assert_each_ready_once(service: LocalService, ids: list[str], before: dict[str, int]) -> None:
    with service.client() as client:
        for task_id in ids:
            task = poll_until(client, task_id, lambda task: task["status"] in ("Ready", "Error"))
            assert task["status"] == "Ready", task
            result = task["result"]
            assert isinstance(result, dict)
            assert client.fetch(result["sample"])[:2] == b"\xff\xd8", "a JPEG file"
    after = events(service)
    assert after["accepted"] - before.get("accepted", 0) == TASKS
    assert after["ready"] - before.get("ready", 0) == TASKS
    assert after.get("error", 0) == before.get("error", 0)


def wait_until_gone(service: LocalService) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while service.processes():
        assert time.monotonic() < give_up, [process.cmdline() for process in service.processes()]
        time.sleep(0.1)


def test_ctrl_c_and_kill_of_the_launcher(breakable: LocalService) -> None:
    before = events(breakable)
    with breakable.client() as client:
        ids = submit_all(client)
        wait_until_under_way(client, ids)
    breakable.stop()
    assert breakable.processes() == []

    breakable.start()
    breakable.kill()
    wait_until_gone(breakable)

    breakable.start()
    assert_each_ready_once(breakable, ids, before)
