"""The server under test, known only by its address and a key."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml
from sent_images import PLACEHOLDERS
from support.webhook_receiver import Received, WebhookReceiver
from support.webhook_receiver import http_response as answer

Json: TypeAlias = dict[str, Any]


def _read(name: str) -> Json:
    """Reads a YAML file, in which $ names an image or a long text."""
    text = (Path(__file__).parent / name).read_text()
    return yaml.safe_load(re.sub(r"\$(\w+)", lambda match: PLACEHOLDERS[match[1]], text))


ENDPOINTS: Final[Mapping[str, Json]] = _read("endpoints.yaml")
RULES: Final[Json] = _read("rules.yaml")
KLEIN: Final = "gen-3-image-klein"
VIDEO: Final = "gen-3-video"
OUTPAINTING: Final = "gen-tools/outpainting-v1"
SUBMITTED: Final = tuple(name for name in ENDPOINTS if name != VIDEO and not name.endswith("-finetuned"))
"""Endpoints to which a task can be submitted with a key alone."""
NO_FINETUNE: Final = "conformance-no-such-finetune"
"""An adapter's id that no server has: a request with it passes validation but starts no task."""
WAITING: Final = frozenset({"Pending", "Reasoning", "Generating"})
TERMINAL: Final = frozenset({"Ready", "Error", "Request Moderated", "Content Moderated"})
_BUSY_S: Final = 30.0
"""Seconds for which a request is retried after 429."""
_TASK_S: Final = 300.0
_ARRIVAL_S: Final = 45.0
"""Seconds after a task's end within which its webhook, or the first retry, must arrive."""
_WAIT_S: Final = 5.0
"""Seconds that one poll waits on the server."""


@dataclass
class ServerUnderTest:
    http: httpx2.Client
    key: str = field(repr=False)
    destination: WebhookReceiver | None = None
    destination_host: str = ""
    idle_hook: str = ""
    """Webhook URL that no server answers, for tests without a destination."""
    finetune: tuple[str, str] = ("", "")
    """Base endpoint and id of an adapter."""
    cache: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Ended tasks and other results that tests share."""
    _started: set[str] = field(default_factory=set[str])
    """Ids of tasks to cancel after the test."""

    @property
    def base_url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    # Requests

    def request(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **options: Any
    ) -> httpx2.Response:
        """Sends a request. With `key` "" it has no key; a whole URL of another origin gets no key either."""
        headers = dict(options.pop("headers", {}))
        if key != "" and (not path.startswith("http") or path.startswith(self.base_url + "/")):
            headers.setdefault("x-key", key or self.key)
        return self.http.request(method, path, json=body, headers=headers, **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return self.request("POST", path, body, **options)

    def post_until_accepted(self, path: str, body: Json, **options: Any) -> httpx2.Response:
        """Sends a request again for a while as long as the answer is 429."""
        deadline = time.monotonic() + _BUSY_S
        while (response := self.post(path, body, **options)).status_code == 429 and time.monotonic() < deadline:
            time.sleep(min(float(response.headers.get("retry-after", 1)), 5.0))
        return response

    # Submissions

    def submit(self, endpoint: str, body: Json, *, retry: bool = True, **options: Any) -> httpx2.Response:
        """Submits a task, which is cancelled after the test."""
        response = (self.post_until_accepted if retry else self.post)(f"/v1/{endpoint}", body, **options)
        if response.status_code == 402:
            pytest.skip("the key's organization has too few credits")
        if response.status_code == 200:
            self._started.add(response.json()["id"])
        return response

    def create_task(self, endpoint: str, body: Json | None = None, **options: Any) -> Json:
        """Submits the endpoint's minimal body with changes; it must be accepted. Returns the response's body."""
        response = self.submit(endpoint, minimal_body(endpoint) | (body or {}), **options)
        assert response.status_code == 200, response.text
        return response.json()

    def expect_accepted(self, endpoint: str, *, needs_approval: bool = False, **change: Any) -> None:
        """Expects that the minimal body with a change passes validation.

        Uses `/v1/pricing` where it exists, which starts no task. With `needs_approval` a rejection
        that lists the approved levels is right, too.
        """
        body = minimal_body(endpoint) | change
        if self._has_pricing():
            response = self.post_until_accepted("/v1/pricing", {"path": f"/v1/{endpoint}", "body": body})
        else:
            response = self.submit(endpoint, body)
        if needs_approval and response.status_code == 422 and "approved" in problems(response)[0].get("ctx", {}):
            return
        valid = 400 if body.get("finetune_id") == NO_FINETUNE else 200
        assert response.status_code == valid, f"{_describe(change)}: {response.text}"

    def expect_rejected(self, endpoint: str, *fields: str, without: str = "", **change: Any) -> Json:
        """Expects a 422 that names one of `fields`, by default a changed one. Returns its entry."""
        body = {name: value for name, value in (minimal_body(endpoint) | change).items() if name != without}
        response = self.submit(endpoint, body)
        assert response.status_code == 422, f"422 for {_describe(change) or without + ' left out'}: {response.text}"
        field_names = set(fields) or {without} - {""} or set(change)
        entries = [entry for entry in problems(response) if field_names.intersection(entry["loc"])]
        assert entries, f"{field_names} in detail[].loc: {response.text}"
        return entries[0]

    def _has_pricing(self) -> bool:
        """Returns whether `POST /v1/pricing` exists and validates requests."""
        if "prices" not in self.cache:
            bodies = (minimal_body(KLEIN), minimal_body(KLEIN) | {"steps": 0})
            answers = [
                self.post_until_accepted("/v1/pricing", {"path": f"/v1/{KLEIN}", "body": body}) for body in bodies
            ]
            self.cache["prices"] = [answer.status_code for answer in answers] == [200, 422]
        return self.cache["prices"]

    # Results

    def poll(self, task_id: str, **options: Any) -> httpx2.Response:
        return self.get("/v1/get_result", key="", params={"id": task_id} | options.pop("params", {}), **options)

    def poll_until_end(self, task_id: str, *, wait: float = 0, **options: Any) -> Iterator[httpx2.Response]:
        """Yields the responses of polls until the task's end. Each poll waits for at most `wait` seconds."""
        self._started.discard(task_id)
        deadline = time.monotonic() + _TASK_S
        while True:
            response = self.poll(task_id, params={"wait": wait} if wait else {}, **options)
            yield response
            if response.json()["status"] not in WAITING:
                return
            assert time.monotonic() < deadline, f"the task did not end within {_TASK_S:g} s"
            time.sleep(0.05)

    def wait_for_end(self, task_id: str) -> Json:
        """Returns the task once it has ended."""
        *_, last = self.poll_until_end(task_id, wait=_WAIT_S)
        assert last.json()["status"] in TERMINAL
        return last.json()

    def run_task(self, endpoint: str = KLEIN, **body: Any) -> Json:
        """Returns a ready task of this request, which all tests share."""
        name = f"{endpoint} {sorted(body.items())}"
        if name not in self.cache:
            task = self.wait_for_end(self.create_task(endpoint, body)["id"])
            assert task["status"] == "Ready", task
            self.cache[name] = task
        return self.cache[name]

    def download(self, task: Json) -> bytes:
        response = self.get(task["result"]["sample"], key="")
        assert response.status_code == 200
        return response.content

    # Webhooks

    def new_hook(self, *answers: int) -> str:
        """Returns a new webhook URL; its first calls are answered with the given statuses."""
        if self.destination is None:
            return self.idle_hook
        self.destination.replies[:] = map(answer, answers)
        return self.destination.url(f"/{secrets.token_hex(8)}", self.destination_host)

    def wait_for_calls(self, hook: str, count: int) -> list[Received]:
        """Returns the calls of a webhook URL once there are `count`."""
        assert self.destination is not None
        deadline = time.monotonic() + _ARRIVAL_S
        while True:
            calls = [each for each in self.destination.received if hook.endswith(each.path)]
            if len(calls) >= count:
                return calls
            assert time.monotonic() < deadline, f"{len(calls)} of {count} calls of the webhook_url came"
            time.sleep(0.05)

    def cancel_tasks(self) -> None:
        """Cancels the test's tasks, where the server supports it."""
        for task_id in self._started:
            self.request("DELETE", f"/v1/tasks/{task_id}")
        self._started.clear()


def minimal_body(endpoint: str) -> Json:
    """Returns the minimal body of an endpoint. An undescribed finetuned one has its base's with an unknown id."""
    if endpoint in ENDPOINTS:
        return dict(ENDPOINTS[endpoint]["body"])
    return minimal_body(endpoint.removesuffix("-finetuned")) | {"finetune_id": NO_FINETUNE}


def problems(response: httpx2.Response) -> list[Json]:
    """Checks the form of a 422. Returns its entries."""
    assert response.status_code == 422, response.text
    entries = response.json()["detail"]
    assert entries
    for entry in entries:
        assert {"type", "loc", "msg"} <= set(entry) <= {"type", "loc", "msg", "ctx"}
        assert all(isinstance(part, str) for part in entry["loc"])
        assert isinstance(entry["msg"], str)
        assert entry["msg"]
        assert isinstance(entry["type"], str)
        assert entry["type"]
    return entries


def error_detail(response: httpx2.Response, status: int) -> str:
    """Checks an error other than 422. Returns its text."""
    assert response.status_code == status, response.text
    assert isinstance(response.json()["detail"], str)
    return response.json()["detail"]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same_origin(one: str, other: str) -> bool:
    return urlsplit(one)[:2] == urlsplit(other)[:2]


def _describe(change: Json) -> str:
    return ", ".join(f"{name} {value!r:.60}" for name, value in change.items())
