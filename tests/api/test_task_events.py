"""A task's progress as it happens."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from support.client import Client, refusal
from support.http_service import Service
from support.pictures import picture
from support.worker import Worker

from serve_app.tasks.task import Status


def events(response: httpx2.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and bodies, as they come."""
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_what_becomes_of_a_task_is_told_as_it_happens(client: Client, worker: Worker) -> None:
    task_id = client.accepted()
    with client.stream("GET", f"/v1/tasks/{task_id}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in response.headers["cache-control"]
        told = events(response)
        name, body = next(told)
        assert (name, body["id"], body["status"], body["progress"]) == ("status", task_id, "Pending", None)
        worker.advance(task_id, Status.GENERATING, progress=0.5)
        name, body = next(told)
        assert (name, body["status"], body["progress"]) == ("status", "Generating", 0.5)
        worker.deliver(task_id, picture(form="JPEG"))
        name, body = next(told)
        assert (name, body["status"]) == ("end", "Ready")
        assert body["result"].keys() == client.poll(task_id).json()["result"].keys()
        assert client.get(body["result"]["sample"]).status_code == 200
        assert list(told) == []


@pytest.mark.parametrize("status", [Status.ERROR, Status.REQUEST_MODERATED])
def test_of_a_task_that_has_ended_only_the_end_is_told(client: Client, worker: Worker, status: Status) -> None:
    task_id = client.accepted()
    worker.end(task_id, status, details={"error": "x"})
    with client.stream("GET", f"/v1/tasks/{task_id}/events") as response:
        assert [(name, body["status"]) for name, body in events(response)] == [("end", status.value)]


def test_a_task_that_is_not_there_has_no_events(client: Client) -> None:
    assert refusal(client.get("/v1/tasks/nothing/events"), 404) == "Task not found"


def test_a_cancelled_task_ends_its_stream(client: Client) -> None:
    task_id = client.accepted()
    with client.stream("GET", f"/v1/tasks/{task_id}/events") as response:
        told = events(response)
        assert next(told)[0] == "status"
        assert client.delete(f"/v1/tasks/{task_id}").status_code == 200
        assert [(name, body["status"]) for name, body in told] == [("end", "Error")]


def test_a_listener_that_leaves_harms_nobody(client: Client, worker: Worker, service: Service) -> None:
    task_id = client.accepted()
    with socket.create_connection(service.address) as wire:
        wire.sendall(f"GET /v1/tasks/{task_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert wire.recv(12) == b"HTTP/1.1 200"
    worker.end(task_id, Status.ERROR)
    assert client.poll(task_id).json()["status"] == "Error"
