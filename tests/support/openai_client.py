"""Calls of the OpenAI routes, which wait for results, and their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2

from support.http_client import Client

OPENAI = ("/v1/images/", "/v1/videos", "/v1/models")
"""Prefixes of OpenAI's paths."""
GENERATIONS = "/v1/images/generations"
EDITS = "/v1/images/edits"
PATIENCE_S = 60


@contextmanager
def waiting(
    client: Client, call: Callable[[], httpx2.Response], count: int = 1
) -> Iterator[tuple[Future[httpx2.Response], list[str]]]:
    """Calls in a thread. Yields the future response and the ids of its tasks; `client` must have no other tasks."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        deadline = time.monotonic() + PATIENCE_S
        while len(ids := active(client)) < count:
            assert not answer.done(), answer.result().text
            assert time.monotonic() < deadline, "no task was accepted"
        yield answer, ids


def active(client: Client) -> list[str]:
    """Returns the ids of the project's unfinished tasks, oldest first."""
    tasks = client.get("/v1/tasks", params={"active": True}).json()["tasks"]
    return [task["id"] for task in sorted(tasks, key=lambda task: task["created"])]


def error(response: httpx2.Response, status: int) -> dict[str, Any]:
    """Checks the form of OpenAI's error envelope. Returns the error."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    body = response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert body["message"]
    return body
