"""`GET /v1/get_result`."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import Final

import pytest
from server_under_test import KLEIN, ServerUnderTest, is_number, problems
from support.promises import promise

needs = pytest.mark.needs
_result = partial(promise, "Result response (polling)")
_get = partial(promise, "13. get_result")
_decided = partial(promise, "Decided: polling")
_KEYS: Final = {"id", "status", "result", "progress", "details", "preview"}
_SLACK_S: Final = 5.0
"""Seconds that a slow network or a busy server may add."""


def _create_slow_task(server: ServerUnderTest) -> str:
    """Submits a task that takes a while. Returns its id."""
    return server.create_task(KLEIN, {"width": 1024, "height": 1024, "steps": 16})["id"]


@_result("`id`: string: Task identifier")
@_result("`status`: string: One of the status values in the next section")
@_get("The address to poll is the `polling_url` returned at submission.")
@_decided("no key needed: the UUID is the capability.")
@_decided("A key that is sent is ignored")
@_decided("200 for every known task whatever its status")
def test_polling_needs_no_key(server: ServerUnderTest) -> None:
    reply = server.create_task(KLEIN)
    polls = [
        server.poll(reply["id"]),
        server.poll(reply["id"], headers={"x-key": "gen_no-such-key"}),
        server.get(reply["polling_url"], key=""),
    ]
    for response in polls:
        assert response.status_code == 200
        assert response.json()["id"] == reply["id"]
        assert isinstance(response.json()["status"], str)


@_decided(
    "always all of `id, status, result, progress, details, preview`, nulls allowed; top-level `cost` once settled"
)
@_decided("null until `Ready`.")
@_decided('null, or `{"sample": url, "step": n, "steps": m}` for endpoints that make previews')
@_decided("`Retry-After` while not terminal")
def test_waiting_task_has_no_result(server: ServerUnderTest) -> None:
    response = server.poll(_create_slow_task(server))
    task = response.json()
    assert set(task) >= _KEYS
    if task["status"] == "Ready":
        pytest.skip("the task was ready at once")
    assert task["result"] is None
    assert task["preview"] is None or set(task["preview"]) == {"sample", "step", "steps"}
    assert response.headers["retry-after"].isdigit()


@promise("Errors", "An unknown task has status `Task not found`.")
@promise("States and transitions", "`Task not found`: No task matches the identifier")
@_decided('unknown or expired id: **404** with the same body shape and `status: "Task not found"`')
@pytest.mark.parametrize(
    "task_id", [str(uuid.UUID(int=7, version=4)), "", "*", "\0", "\N{CAT FACE}", "x" * 64, "../keys"]
)
def test_unknown_task_is_404_at_once(server: ServerUnderTest, task_id: str) -> None:
    response = server.poll(task_id, params={"wait": 60})
    assert response.status_code == 404
    assert response.json() == {**dict.fromkeys(_KEYS), "id": task_id, "status": "Task not found"}
    assert "retry-after" not in response.headers


@_get("Returns the result response described above, or the validation error body on 422.")
@_decided("`id`, required (missing: 422).")
@_decided("Optional `wait` (seconds, 0 to 60)")
def test_invalid_queries_are_rejected(server: ServerUnderTest) -> None:
    for query in ({}, {"id": "x" * 65}):
        assert "id" in problems(server.get("/v1/get_result", key="", params=query))[0]["loc"]
    for wait in ("-1", "60.5", "inf", "nan", "soon", ""):
        assert "wait" in problems(server.poll(str(uuid.uuid4()), params={"wait": wait}))[0]["loc"]


@needs("results")
@_decided("answer as soon as the task is terminal, or when the wait is over, whichever is first")
def test_poll_waits_for_the_end(server: ServerUnderTest) -> None:
    start = time.monotonic()
    server.poll(server.run_task()["id"], params={"wait": 30})
    assert time.monotonic() - start < _SLACK_S
    slow, start = _create_slow_task(server), time.monotonic()
    task = server.poll(slow, params={"wait": 1}).json()
    took = time.monotonic() - start
    assert took < 1 + _SLACK_S
    assert task["status"] == "Ready" or took >= 0.9


@needs("results")
@promise("What the service does", "the final polling response carries the settled cost.")
@_result("`result`: any or null: The generated output; null in the shape example")
@_result("`progress`: number: Progress indicator")
@_result("`cost`: number: Settled cost in credits (in the variant that carries it)")
@_decided(
    '`details`: null; `{"Moderation Reasons": [..]}` when moderated; `{"error": "<what the client can act on>"}` on '
    "`Error`"
)
def test_ready_task_has_result_and_cost(server: ServerUnderTest) -> None:
    reply = server.create_task(KLEIN)
    task = server.wait_for_end(reply["id"])
    assert set(task) >= _KEYS
    assert task["result"] is not None
    assert is_number(task["progress"])
    assert task["cost"] == reply["cost"]
    assert task["details"] is None or isinstance(task["details"], dict)


@needs("results")
@_decided("`progress`: 0.0 to 1.0, never falls; null when not known")
def test_progress_never_falls(server: ServerUnderTest) -> None:
    polls = [response.json() for response in server.poll_until_end(_create_slow_task(server))]
    progress = [task["progress"] for task in polls if task["progress"] is not None]
    assert progress == sorted(progress)
    assert 0 <= progress[0] <= progress[-1] <= 1
    assert polls[-1]["status"] != "Ready" or progress[-1] == 1


@needs("results")
@_decided("`ETag` and 304")
def test_unchanged_poll_is_304(server: ServerUnderTest) -> None:
    task = server.run_task()
    tag = server.poll(task["id"]).headers["etag"]
    again = server.poll(task["id"], headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
