"""The server under test: it is known by its address and a key, and by nothing else."""

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
    """A file of this folder, in which $ names an image or a long text."""
    text = (Path(__file__).parent / name).read_text()
    return yaml.safe_load(re.sub(r"\$(\w+)", lambda match: PLACEHOLDERS[match[1]], text))


ENDPOINTS: Final[Mapping[str, Json]] = _read("endpoints.yaml")
RULES: Final[Json] = _read("rules.yaml")
KLEIN: Final = "gen-3-image-klein"
VIDEO: Final = "gen-3-video"
OUTPAINTING: Final = "gen-tools/outpainting-v1"
SUBMITTED: Final = tuple(name for name in ENDPOINTS if name != VIDEO and not name.endswith("-finetuned"))
"""Those that a task can be submitted to with no more than a key."""
NO_FINETUNE: Final = "conformance-no-such-finetune"
"""No server has a tuned model of this id, so a request with it can pass validation and never start a task."""
WAITING: Final = frozenset({"Pending", "Reasoning", "Generating"})
TERMINAL: Final = frozenset({"Ready", "Error", "Request Moderated", "Content Moderated"})
_BUSY_S: Final = 30.0
"""How long a request is put off by 429."""
_TASK_S: Final = 300.0
_ARRIVAL_S: Final = 45.0
"""How long after the end of its task a webhook, or the first repetition, may take."""
_WAIT_S: Final = 5.0
"""How long one poll waits on the server's side."""


@dataclass
class ServerUnderTest:
    http: httpx2.Client
    key: str = field(repr=False)
    destination: WebhookReceiver | None = None
    destination_host: str = ""
    idle_hook: str = ""
    """An address that may be named for webhooks though nobody is there, where there is no destination."""
    finetune: tuple[str, str] = ("", "")
    """The base endpoint and the id of a tuned model."""
    cache: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Tasks that came to their end, and what was found out: tests that look at the same share it."""
    _started: set[str] = field(default_factory=set[str])
    """Tasks to cancel after the test."""

    @property
    def base_url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    # Asking

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **options: Any
    ) -> httpx2.Response:
        """`key` "" sends none; `path` may be a whole URL, and the key then goes to the server's own origin only."""
        headers = dict(options.pop("headers", {}))
        if key != "" and (not path.startswith("http") or path.startswith(self.base_url + "/")):
            headers.setdefault("x-key", key or self.key)
        return self.http.request(method, path, json=body, headers=headers, **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return self.ask("POST", path, body, **options)

    def patiently(self, path: str, body: Json, **options: Any) -> httpx2.Response:
        """The answer to a request that may be put off by 429 for a while."""
        give_up = time.monotonic() + _BUSY_S
        while (response := self.post(path, body, **options)).status_code == 429 and time.monotonic() < give_up:
            time.sleep(min(float(response.headers.get("retry-after", 1)), 5.0))
        return response

    # Submitting

    def submit(self, endpoint: str, body: Json, *, patiently: bool = True, **options: Any) -> httpx2.Response:
        """The answer to a submission. Its task is cancelled after the test."""
        response = (self.patiently if patiently else self.post)(f"/v1/{endpoint}", body, **options)
        if response.status_code == 402:
            pytest.skip("the key's organization has too few credits")
        if response.status_code == 200:
            self._started.add(response.json()["id"])
        return response

    def create_task(self, endpoint: str, body: Json | None = None, **options: Any) -> Json:
        """The answer to the endpoint's least request, changed by `body`, which has to be 200."""
        response = self.submit(endpoint, least(endpoint) | (body or {}), **options)
        assert response.status_code == 200, response.text
        return response.json()

    def takes(self, endpoint: str, *, gated: bool = False, **change: Any) -> None:
        """Expects that the least request with this change passes validation.

        Where the server tells prices, it is asked for this one's: that starts no task. `gated`: a refusal that tells
        the approved levels is no fault.
        """
        body = least(endpoint) | change
        if self._has_pricing():
            response = self.patiently("/v1/pricing", {"path": f"/v1/{endpoint}", "body": body})
        else:
            response = self.submit(endpoint, body)
        if gated and response.status_code == 422 and "approved" in problems(response)[0].get("ctx", {}):
            return
        valid = 400 if body.get("finetune_id") == NO_FINETUNE else 200
        assert response.status_code == valid, f"{_describe(change)}: {response.text}"

    def refuses(self, endpoint: str, *fields: str, without: str = "", **change: Any) -> Json:
        """Expects a 422 that names one of the fields, else those that were changed. Returns the entry."""
        body = {name: value for name, value in (least(endpoint) | change).items() if name != without}
        response = self.submit(endpoint, body)
        assert response.status_code == 422, f"422 for {_describe(change) or without + ' left out'}: {response.text}"
        field_names = set(fields) or {without} - {""} or set(change)
        entries = [entry for entry in problems(response) if field_names.intersection(entry["loc"])]
        assert entries, f"{field_names} in detail[].loc: {response.text}"
        return entries[0]

    def _has_pricing(self) -> bool:
        """Whether `POST /v1/pricing` is there and checks a request as its submission would."""
        if "prices" not in self.cache:
            bodies = (least(KLEIN), least(KLEIN) | {"steps": 0})
            answers = [self.patiently("/v1/pricing", {"path": f"/v1/{KLEIN}", "body": body}) for body in bodies]
            self.cache["prices"] = [answer.status_code for answer in answers] == [200, 422]
        return self.cache["prices"]

    # Results

    def poll(self, task_id: str, **options: Any) -> httpx2.Response:
        return self.get("/v1/get_result", key="", params={"id": task_id} | options.pop("params", {}), **options)

    def answers(self, task_id: str, *, wait: float = 0, **options: Any) -> Iterator[httpx2.Response]:
        """What polling answers, again and again, to the task's end. Each poll waits for it, `wait` seconds at most."""
        self._started.discard(task_id)
        give_up = time.monotonic() + _TASK_S
        while True:
            response = self.poll(task_id, params={"wait": wait} if wait else {}, **options)
            yield response
            if response.json()["status"] not in WAITING:
                return
            assert time.monotonic() < give_up, f"the task ends within {_TASK_S:g} s"
            time.sleep(0.05)

    def wait_for_end(self, task_id: str) -> Json:
        """The task once it has ended."""
        *_, last = self.answers(task_id, wait=_WAIT_S)
        assert last.json()["status"] in TERMINAL
        return last.json()

    def run_task(self, endpoint: str = KLEIN, **body: Any) -> Json:
        """A task of this request that is `Ready`; the same one for every test that asks."""
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

    def hook(self, *answers: int) -> str:
        """A new URL, whose first calls are answered so. For tests that need a destination, or a hook at least."""
        if self.destination is None:
            return self.idle_hook
        self.destination.replies[:] = map(answer, answers)
        return self.destination.url(f"/{secrets.token_hex(8)}", self.destination_host)

    def deliveries(self, hook: str, count: int) -> list[Received]:
        """What came for a hook, once there are `count`."""
        assert self.destination is not None
        give_up = time.monotonic() + _ARRIVAL_S
        while True:
            calls = [each for each in self.destination.received if hook.endswith(each.path)]
            if len(calls) >= count:
                return calls
            assert time.monotonic() < give_up, f"{count} calls of the webhook_url; {len(calls)} came"
            time.sleep(0.05)

    def cancel_what_was_started(self) -> None:
        """A server that can't cancel lets it run."""
        for task_id in self._started:
            self.ask("DELETE", f"/v1/tasks/{task_id}")
        self._started.clear()


def least(endpoint: str) -> Json:
    """The least body of an endpoint; of a tuned one that is not described by itself, its base's with a made-up id."""
    if endpoint in ENDPOINTS:
        return dict(ENDPOINTS[endpoint]["least"])
    return least(endpoint.removesuffix("-finetuned")) | {"finetune_id": NO_FINETUNE}


def problems(response: httpx2.Response) -> list[Json]:
    """The entries of a validation error body, whose form is checked on the way."""
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


def detail(response: httpx2.Response, status: int) -> str:
    """The text of an error that is no 422."""
    assert response.status_code == status, response.text
    assert isinstance(response.json()["detail"], str)
    return response.json()["detail"]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same_origin(one: str, other: str) -> bool:
    return urlsplit(one)[:2] == urlsplit(other)[:2]


def _describe(change: Json) -> str:
    return ", ".join(f"{name} {value!r:.60}" for name, value in change.items())
