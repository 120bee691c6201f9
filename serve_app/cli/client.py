"""A small client of the service's HTTP interface: submit, wait, fetch."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

from serve_app.cli.description import Description

_POLL_S = 10
"""How long one poll waits on the server's side."""
_UPLOAD_S = 600
_TERMINAL = {"Ready", "Error", "Request Moderated", "Content Moderated", "Task not found"}


class ServiceError(Exception):
    """What the service said no to, or that it can't be reached. Its text is fit for a person."""


class Client:
    """Talks to one service. Use as a context manager."""

    def __init__(self, base_url: str, key: str = "") -> None:
        self.base_url = base_url.rstrip("/")
        headers = {"x-key": key} if key else {}
        self._http = httpx2.Client(base_url=self.base_url, headers=headers, timeout=_POLL_S + 20, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def submit(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The submission's answer: `id`, `polling_url`, costs."""
        return self._call("POST", f"/v1/{path.removeprefix('/').removeprefix('v1/')}", json=dict(body))

    def poll(self, task_id: str, wait: float = 0) -> dict[str, Any]:
        """The task as it is, after `wait` seconds at most."""
        return self._call("GET", "/v1/get_result", params={"id": task_id, "wait": wait}, accept=(404,))

    def wait(self, task_id: str, on_poll: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
        """The task once it has ended. `on_poll` sees every answer on the way."""
        while True:
            task = self.poll(task_id, wait=0.5)
            on_poll(task)
            if task["status"] in _TERMINAL:
                return task

    def fetch(self, url: str) -> bytes:
        """The file behind a result link, which may lie on another host: the key stays here."""
        headers = {} if url.startswith(self.base_url + "/") else {"x-key": ""}
        return self._answer("GET", url, headers=headers).content

    def tasks(self, *, limit: int, cursor: str | None = None, active: bool = False) -> dict[str, Any]:
        params = {"limit": limit, "active": active} | ({"cursor": cursor} if cursor else {})
        return self._call("GET", "/v1/tasks", params=params)

    def cancel(self, task_id: str) -> dict[str, Any]:
        return self._call("DELETE", f"/v1/tasks/{task_id}")

    def credits(self) -> float:
        """What the key's organization has left."""
        return self._call("GET", "/v1/credits")["credits"]

    def upload_finetune(self, file: Path, base: str, name: str) -> dict[str, Any]:
        with file.open("rb") as content:
            params = {"base": base, "name": name}
            return self._call("POST", "/v1/finetunes", params=params, content=content, timeout=_UPLOAD_S)

    def finetunes(self) -> list[dict[str, Any]]:
        return self._call("GET", "/v1/my_finetunes")["finetunes"]

    def delete_finetune(self, finetune_id: str) -> dict[str, Any]:
        return self._call("POST", "/v1/delete_finetune", json={"finetune_id": finetune_id})

    def description(self) -> Description:
        """What the service says of itself; one that says nothing has no endpoints in it."""
        answer = self._answer("GET", "/openapi.json", accept=range(400, 500))
        try:
            document = answer.json() if answer.is_success else {}
        except ValueError:
            document = {}
        return Description(document if isinstance(document, dict) else {})

    def ready(self) -> bool:
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx2.HTTPError:
            return False

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = self._answer(method, path, **options)
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ServiceError(f"{self.base_url} is something else: it answers {path} with no object; see --base-url")
        return body

    def _answer(self, method: str, path: str, *, accept: Container[int] = (), **options: Any) -> httpx2.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx2.ConnectError as problem:
            raise ServiceError(
                f"{self.base_url} can't be reached ({problem}); gen-serve up starts a service, --base-url names another"
            ) from None
        except httpx2.HTTPError as problem:
            raise ServiceError(f"{self.base_url} can't be reached: {problem}") from None
        if response.is_success or response.status_code in accept:
            return response
        raise ServiceError(f"HTTP {response.status_code}: {_reason(response)}")


def extension(url: str) -> str:
    """The suffix of the file behind a result link, with its dot."""
    suffix = Path(httpx2.URL(url).path).suffix
    return suffix or mimetypes.guess_extension("image/jpeg") or ".jpeg"


def _reason(response: httpx2.Response) -> str:
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
    if isinstance(detail, str):
        return detail
    try:
        return "; ".join(f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in detail)
    except (KeyError, TypeError):
        return str(detail)[:200]
