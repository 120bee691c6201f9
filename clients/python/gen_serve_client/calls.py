"""Calls of the service as steps: the requests to send, and the meaning of their answers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from gen_serve_client.errors import (
    Moderated,
    NotAllowed,
    NotInTime,
    OutOfReach,
    Refused,
    TaskFailed,
    TaskNotFound,
    UnexpectedAnswer,
)
from gen_serve_client.exchange import Answer, HttpRequest, Param, Pause, Steps, exchange
from gen_serve_client.retries import Retries
from gen_serve_client.types import DeletedFinetune, FinetuneDetails, Progress, Status, Submission, TaskPage, TaskResult
from gen_serve_client.version import VERSION

_USER_AGENT: Final = f"gen-serve-client/{VERSION}"
_POLL_S: Final = 20.0
"""Seconds that one poll waits at the server."""
_PROGRESS_POLL_S: Final = 0.5
"""Seconds that one poll waits at the server if the caller wants progress."""
_ANSWER_S: Final = 30.0
_SUBMIT_S: Final = 120.0
"""Longer than others, as the service fetches and checks images before it answers a submission."""
_UPLOAD_S: Final = 600.0
_PORTS: Final = {"http": 80, "https": 443}
_NOT_FOUND: Final = "Task not found"


class Calls:
    """Service at an address, with a key, which may be empty."""

    def __init__(self, base_url: str, key: str, retries: Retries) -> None:
        """Raises ValueError for an invalid address or key."""
        self.base_url = base_url.rstrip("/")
        if None in _origin(base_url):
            raise ValueError(f"{base_url} is no address like http://127.0.0.1:8000 or https://media.example.com")
        if not (key.isascii() and key.isprintable()):
            raise ValueError("a key has printable ASCII characters only")
        self._key = key
        self._retries = retries

    def submit(self, endpoint: str, body: Mapping[str, object], idempotency_key: str | None) -> Steps[Submission]:
        # One key for all tries, so that they make one task.
        path = f"/v1/{endpoint.removeprefix('/').removeprefix('v1/')}"
        headers = {"idempotency-key": idempotency_key or str(uuid.uuid4())}
        answer = yield from self._call("POST", path, timeout_s=_SUBMIT_S, headers=headers, body=body)
        return cast(Submission, self._object(answer, path, "id"))

    def poll(self, task_id: str, wait_s: float, deadline: float | None = None) -> Steps[TaskResult]:
        """Polls a task. `deadline`: monotonic time of the last try."""
        params = {"id": task_id, "wait": wait_s}
        answer = yield from self._call(
            "GET", "/v1/get_result", timeout_s=wait_s + _ANSWER_S, params=params, accept=404, deadline=deadline
        )
        return cast(TaskResult, self._object(answer, "/v1/get_result", "id", "status"))

    def wait(self, task_id: str, progress: Progress | None, timeout_s: float | None) -> Steps[TaskResult]:
        """Waits until a task is `Ready`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        max_wait_s = _POLL_S if progress is None else _PROGRESS_POLL_S
        while True:
            started_at = time.monotonic()
            wait_s = max_wait_s if deadline is None else min(max_wait_s, max(0.0, deadline - started_at))
            task = yield from self.poll(task_id, wait_s, deadline)
            if progress is not None:
                progress(task)
            if _is_ready(task):
                return task
            now = time.monotonic()
            if timeout_s is not None and deadline is not None and now >= deadline:
                raise NotInTime(task_id, timeout_s)
            if now - started_at < wait_s:  # other services ignore `wait`
                yield Pause(min(1.0, started_at + wait_s - now))

    def content(self, task: TaskResult) -> Steps[bytes]:
        """Downloads the file of a task that is `Ready`, by a new link if the old one has expired."""
        try:
            return (yield from self.fetch(link(task)))
        except NotAllowed:
            fresh = yield from self.poll(task["id"], 0)
            _is_ready(fresh)
            return (yield from self.fetch(link(fresh)))

    def fetch(self, url: str) -> Steps[bytes]:
        answer = yield from self._call("GET", url)
        return answer.body

    def cancel(self, task_id: str) -> Steps[TaskResult]:
        path = f"/v1/tasks/{quote(task_id, safe='')}"
        try:
            answer = yield from self._call("DELETE", path)
        except Refused as refusal:
            if refusal.detail == _NOT_FOUND:
                raise TaskNotFound(task_id) from None
            raise
        return cast(TaskResult, self._object(answer, path, "id", "status"))

    def tasks(
        self,
        limit: int,
        cursor: str | None,
        active: bool,
        statuses: Sequence[Status],
        endpoint: str | None,
        since: float | None,
    ) -> Steps[TaskPage]:
        params: dict[str, Param] = {"limit": limit, "active": str(active).lower(), "status": list(statuses)}
        optional = {"cursor": cursor, "endpoint": endpoint, "since": since}
        params |= {name: value for name, value in optional.items() if value is not None}
        answer = yield from self._call("GET", "/v1/tasks", params=params)
        return cast(TaskPage, self._object(answer, "/v1/tasks", "tasks"))

    def credits(self) -> Steps[float]:
        answer = yield from self._call("GET", "/v1/credits")
        return self._object(answer, "/v1/credits", "credits")["credits"]

    def upload_finetune(self, file: Path, base: str, name: str) -> Steps[FinetuneDetails]:
        headers = {"content-type": "application/octet-stream", "content-length": str(file.stat().st_size)}
        answer = yield from self._call(
            "POST",
            "/v1/finetunes",
            timeout_s=_UPLOAD_S,
            params={"base": base, "name": name},
            headers=headers,
            body=file,
            repeatable=False,
        )
        return cast(FinetuneDetails, self._object(answer, "/v1/finetunes", "finetune_id"))

    def finetunes(self) -> Steps[list[FinetuneDetails]]:
        answer = yield from self._call("GET", "/v1/my_finetunes")
        return self._object(answer, "/v1/my_finetunes", "finetunes")["finetunes"]

    def delete_finetune(self, finetune_id: str) -> Steps[DeletedFinetune]:
        path = "/v1/delete_finetune"
        answer = yield from self._call("POST", path, body={"finetune_id": finetune_id}, repeatable=False)
        return cast(DeletedFinetune, self._object(answer, path))

    def ready(self) -> Steps[bool]:
        try:
            yield from exchange(self._request("GET", "/readyz"), self.base_url, Retries(tries=1))
        except (OutOfReach, Refused):
            return False
        return True

    def openapi(self) -> Steps[dict[str, Any]]:
        answer = yield from self._call("GET", "/openapi.json")
        return self._object(answer, "/openapi.json")

    def request(self, method: str, path: str, **parts: Any) -> Steps[Any]:
        """Returns the JSON of any path; None for an empty answer. `parts` are those of `_request`."""
        return (yield from self._call(method, path, **parts)).json

    def _call(
        self, method: str, url: str, *, accept: int | None = None, deadline: float | None = None, **parts: Any
    ) -> Steps[Answer]:
        request = self._request(method, url, **parts)
        return (yield from exchange(request, self.base_url, self._retries, accept=accept, deadline=deadline))

    def _request(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float = _ANSWER_S,
        params: Mapping[str, Param] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, object] | Path | None = None,
        repeatable: bool = True,
    ) -> HttpRequest:
        """Makes a request to a path of the service or to any URL; the key goes to the service's own origin only."""
        absolute = f"{self.base_url}{url}" if url.startswith("/") else url
        all_headers = {"user-agent": _USER_AGENT, **(headers or {})}
        if self._key and _origin(absolute) == _origin(self.base_url):
            all_headers["x-key"] = self._key
        if isinstance(body, Mapping):
            all_headers["content-type"] = "application/json"
            content = json.dumps(body, allow_nan=False).encode()
        else:
            content = body
        return HttpRequest(method, absolute, timeout_s, params or {}, all_headers, content, repeatable)

    def _object(self, answer: Answer, path: str, *names: str) -> dict[str, Any]:
        """Returns the answer's JSON object. Raises UnexpectedAnswer if it lacks one of the names."""
        body = answer.json
        if not isinstance(body, dict) or not body.keys() >= set(names):
            raise UnexpectedAnswer(self.base_url, path)
        return body


def link(task: TaskResult) -> str:
    """Returns the link to the file of a task that is `Ready`."""
    return (task.get("result") or {})["sample"]


def _is_ready(task: TaskResult) -> bool:
    """Returns False for an unfinished task. Raises TaskUnsuccessful and TaskNotFound."""
    match task["status"]:
        case "Request Moderated" | "Content Moderated":
            raise Moderated(task)
        case "Error":
            raise TaskFailed(task)
        case "Task not found":
            raise TaskNotFound(task["id"])
        case status:
            return status == "Ready"


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    """Returns scheme, host and port; None each if the URL is not of HTTP."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None, None, None
    return (parts.scheme, parts.hostname, port) if parts.scheme in _PORTS else (None, None, None)
