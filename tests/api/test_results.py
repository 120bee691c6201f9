"""Polling of tasks: phases, results, waiting, ETags, event streams."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from support.http_client import Client, refusal
from support.http_service import Service, StartService
from support.images import image_file
from support.payloads import new_result
from support.promises import promise
from support.worker import Worker

from serve_app.api.routes import results
from serve_app.config.settings import ServiceSettings
from serve_app.tasks.task import Status

KEYS = {"id", "status", "result", "progress", "details", "preview"}
REASONS = {"Moderation Reasons": ["Violence", "Sexual Content"]}
AI_SDK = "ai/7.0.173 ai-sdk/provider-utils/5.0.40 runtime/node.js/v24.19.0"
"""User agent of its `generateImage`."""


@promise(
    "Decided: polling",
    "`Pending` → `Reasoning` (only when a prompt is rewritten or a ratio is chosen) → `Generating` → `Ready`.",
)
def test_poll_shows_every_phase_and_rising_progress(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    events: list[tuple[str, float | None]] = []
    steps = [(Status.REASONING, None), *((Status.GENERATING, progress) for progress in (0.0, 0.5, 0.25))]
    for status, progress in [(None, None), *steps]:
        if status is not None:
            worker.advance(task_id, status, progress=progress)
        body = client.poll(task_id).json()
        assert set(body) >= KEYS
        events.append((body["status"], body["progress"]))
    assert events == [
        ("Pending", None),
        ("Reasoning", None),
        ("Generating", 0.0),
        ("Generating", 0.5),
        ("Generating", 0.5),
    ]


@promise(
    "Decided: polling",
    "always all of `id, status, result, progress, details, preview`, nulls allowed; top-level `cost` once settled",
)
def test_ready_task_has_result_and_cost(client: Client, worker: Worker, service: Service) -> None:
    submitted = client.submit(prompt="a red star", seed=7).json()
    worker.deliver(submitted["id"], image_file(form="JPEG"))
    response = client.poll(submitted["id"])
    body = response.json()
    assert set(body) == KEYS | {"cost"}
    assert (body["cost"], body["details"], body["preview"]) == (submitted["cost"], None, None)
    sample = body["result"].pop("sample")
    assert body["result"] == {
        "prompt": "a red star",
        "seed": 7,
        "start_time": 1_700_000_000.5,
        "end_time": 1_700_000_002.0,
        "duration": 1.5,
    }
    assert sample.startswith(f"{service.base_url}/v1/results/")
    assert "retry-after" not in response.headers


@promise("Decided: polling", "A key with no value is left out, never null.")
@promise("Result response (polling)", "`details`: object: Extra information")
def test_warnings_are_in_details_beside_the_result(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    result = new_result(f"results/{task_id}/1/image.png")
    details = {"warnings": ["No subject stands out from the background, so nothing was made transparent"]}
    worker.end(task_id, Status.READY, result=result, details=details)
    body = client.poll(task_id).json()
    assert set(body["result"]) == {"sample", "prompt", "seed", "start_time", "end_time", "duration"}
    assert (body["status"], body["details"]) == ("Ready", details)


@promise("States and transitions", "Both moderated states carry `Moderation Reasons` in `details`.")
@pytest.mark.parametrize(
    ("status", "details"),
    [
        (Status.REQUEST_MODERATED, REASONS),
        (Status.ERROR, {"error": "The image could not be made; try another seed"}),
    ],
)
def test_failed_task_has_details_and_no_result(
    client: Client, worker: Worker, status: Status, details: dict[str, Any]
) -> None:
    task_id = client.create_task()
    if status is not Status.REQUEST_MODERATED:
        worker.advance(task_id, Status.GENERATING, progress=0.5)
    worker.end(task_id, status, details=details)
    response = client.poll(task_id)
    body = response.json()
    assert response.status_code == 200
    assert set(body) == KEYS
    assert (body["status"], body["details"], body["result"]) == (status.value, details, None)
    assert "retry-after" not in response.headers


@promise("Decided: polling", 'null, or `{"sample": url, "step": n, "steps": m}` for endpoints that make previews')
def test_preview_is_shown_until_the_result(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    for step in (4, 8):
        data = image_file(step * 10, 10, "JPEG")
        worker.show_preview(task_id, data, step, 16)
        body = client.poll(task_id).json()
        preview = body["preview"]
        assert (preview["step"], preview["steps"], body["progress"]) == (step, 16, step / 16)
        assert client.get(preview["sample"]).content == data
    worker.deliver(task_id, image_file(form="JPEG"))
    assert client.poll(task_id).json()["preview"] is None


@promise("Errors", "An unknown task has status `Task not found`.")
def test_undecodable_id_is_404(client: Client) -> None:
    assert client.get("/v1/get_result?id=%ff%fe").status_code == 404


@promise("Decided: polling", "answer as soon as the task is terminal, or when the wait is over, whichever is first")
def test_waiting_polls_end_with_the_task(start_service: StartService) -> None:
    service = start_service()
    worker = service.worker
    with service.client() as client, ThreadPoolExecutor() as pool:
        ready, failed, cancelled = (client.create_task() for _ in range(3))
        polls = {task_id: pool.submit(client.poll, task_id, wait=60) for task_id in (ready, failed, cancelled)}
        polls["again"] = pool.submit(client.poll, ready, wait=60)
        await_listener(service)
        assert not any(poll.done() for poll in polls.values())
        worker.deliver(ready, image_file(form="JPEG"))
        worker.end(failed, Status.REQUEST_MODERATED)
        assert client.delete(f"/v1/tasks/{cancelled}").status_code == 200
        # If they were answered when their wait is over, the client would time out.
        statuses = [poll.result().json()["status"] for poll in polls.values()]
        assert statuses == ["Ready", "Request Moderated", "Error", "Ready"]


def await_listener(service: Service) -> None:
    """Waits until the service listens for ends of tasks, as it does from the first waiting poll on."""
    tasks = service.worker.tasks
    channel = tasks.channel("done")

    async def listeners() -> int:
        ((_, count),) = await tasks.redis.pubsub_numsub(channel)
        return count

    while not service.worker.run(listeners()):
        pass


@promise("Decided: polling", "answer as soon as the task is terminal, or when the wait is over, whichever is first")
def test_wait_ends_with_the_current_status(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    response = client.poll(task_id, wait=0.01)
    assert (response.status_code, response.json()["status"]) == (200, "Pending")
    assert "retry-after" in response.headers
    worker.end(task_id, Status.ERROR, details={"error": "x"})
    assert client.poll(task_id, wait=60).json()["status"] == "Error"


@pytest.mark.parametrize("path", ["get_result?id={}&wait=60", "tasks/{}/events"])
def test_disconnected_client_delays_no_other_poll(client: Client, worker: Worker, service: Service, path: str) -> None:
    task_id = client.create_task()
    with socket.create_connection(service.address) as wire:
        wire.sendall(f"GET /v1/{path.format(task_id)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if "events" in path:
            assert wire.recv(12) == b"HTTP/1.1 200"
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(client.poll, task_id, wait=60)
        worker.end(task_id, Status.ERROR)
        assert poll.result().json()["status"] == "Error"


@promise("Decided: polling", "`Retry-After` while not terminal; `ETag` and 304")
def test_unchanged_poll_is_304_until_the_task_advances(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    first = client.poll(task_id)
    tag = {"If-None-Match": first.headers["etag"]}
    again = client.get("/v1/get_result", params={"id": task_id}, headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert "retry-after" in again.headers

    worker.advance(task_id, Status.GENERATING, progress=0.1)
    changed = client.get("/v1/get_result", params={"id": task_id}, headers=tag)
    assert (changed.status_code, changed.json()["status"]) == (200, "Generating")
    assert changed.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(("now", "same"), [(1000.0, True), (1199.0, True), (1201.0, False)])
def test_new_signature_changes_the_tag_at_half_life(monkeypatch: pytest.MonkeyPatch, now: float, same: bool) -> None:
    """S3 signs a link anew at each poll."""
    tags = []
    for signature, at in (("a", 901.0), ("b", now)):
        monkeypatch.setattr(results.time, "time", lambda at=at: at)
        tags.append(results._etag(f'{{"sample": "https://bucket/x.png?sig={signature}", "seed": 1}}'.encode(), 600.0))
    assert (tags[0] == tags[1]) is same


@promise(
    "Decided: polling",
    "`basic`: `Reasoning` and `Generating` reported as `Pending`, because some published clients reject "
    "strings they don't know.",
)
@promise("Decided: polling", "`basic` applies when the task's project says so")
@pytest.mark.parametrize(
    ("agent", "basic", "project"),
    [
        (AI_SDK, True, False),
        ("ai-sdk/black-forest-labs/2.0.41 ai-sdk/provider-utils/5.0.40 runtime/node.js/v24.19.0", True, False),
        ("bfl-python/0.2.0", True, False),
        ("python-requests/2.34.2", False, False),
        ("", True, True),
    ],
)
def test_strict_clients_get_basic_statuses(
    client: Client, worker: Worker, agent: str, basic: bool, project: bool
) -> None:
    if project:
        worker.set_project(client.project, statuses="basic")
    task_id = client.create_task()
    states: list[tuple[str, float | None]] = []
    for status, progress in ((Status.REASONING, None), (Status.GENERATING, 0.5)):
        worker.advance(task_id, status, progress=progress)
        response = client.get("/v1/get_result", params={"id": task_id}, headers={"User-Agent": agent})
        assert "User-Agent" in response.headers["vary"]
        states.append((response.json()["status"], response.json()["progress"]))
    phases = ("Pending", "Pending") if basic else ("Reasoning", "Generating")
    assert states == [(phases[0], None), (phases[1], 0.5)]


def test_polls_above_the_limit_do_not_wait(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_ongoing_requests=2))
    with service.client() as client, ThreadPoolExecutor() as pool:
        task_id = client.create_task()
        waiting = pool.submit(client.poll, task_id, wait=60)
        await_listener(service)
        # If it were answered when its wait is over, the client would time out.
        assert client.poll(task_id, wait=60).json()["status"] == "Pending"
        assert not waiting.done()
        service.worker.end(task_id, Status.ERROR)
        assert waiting.result().json()["status"] == "Error"


def test_lost_notification_does_not_block_polls(start_service: StartService) -> None:
    service = start_service()
    with service.client() as client, ThreadPoolExecutor() as pool:
        task_id = client.create_task()
        waiting = pool.submit(client.poll, task_id, wait=60)
        await_listener(service)
        kill: Any = service.worker.tasks.redis.client_kill_filter(_type="pubsub")
        service.worker.run(kill)
        service.worker.end(task_id, Status.ERROR)
        assert waiting.result().json()["status"] == "Error"


# Event streams


def events(response: httpx2.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields names and bodies as they arrive."""
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_events_follow_the_task_to_its_end(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    with client.stream("GET", f"/v1/tasks/{task_id}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in response.headers["cache-control"]
        stream = events(response)
        name, body = next(stream)
        assert (name, body["id"], body["status"], body["progress"]) == ("status", task_id, "Pending", None)
        worker.advance(task_id, Status.GENERATING, progress=0.5)
        name, body = next(stream)
        assert (name, body["status"], body["progress"]) == ("status", "Generating", 0.5)
        worker.deliver(task_id, image_file(form="JPEG"))
        name, body = next(stream)
        assert (name, body["status"]) == ("end", "Ready")
        assert body["result"].keys() == client.poll(task_id).json()["result"].keys()
        assert client.get(body["result"]["sample"]).status_code == 200
        assert list(stream) == []
    with client.stream("GET", f"/v1/tasks/{task_id}/events") as response:
        assert [(name, body["status"]) for name, body in events(response)] == [("end", "Ready")]
    assert refusal(client.get("/v1/tasks/nothing/events"), 404) == "Task not found"
