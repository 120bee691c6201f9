"""An HTTP client of the service, and readers of its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from serve_app.accounts.credits import DEFAULT_ORGANIZATION

ENDPOINT = "/v1/gen-3-image-klein"
HOOK_HOST = "hooks.test"
"""Resolves to a public address that no test connects to."""
HOOK = f"https://{HOOK_HOST}/done"


class Client(httpx2.Client):
    """An HTTP client of the service with an API key."""

    def __init__(
        self,
        base_url: str,
        project: str,
        secret: str,
        headers: Mapping[str, str] | None = None,
        organization: str = DEFAULT_ORGANIZATION,
    ) -> None:
        super().__init__(base_url=base_url, headers={"x-key": secret, **(headers or {})}, timeout=60, trust_env=False)
        self.project = project
        self.organization = organization
        self.secret = secret

    def submit(self, **body: Any) -> httpx2.Response:
        """Submits an image with a default prompt."""
        return self.post(ENDPOINT, json={"prompt": "a red star", **body})

    def create_task(self, **body: Any) -> str:
        """Submits an image that must be accepted. Returns the task's id."""
        response = self.submit(**body)
        assert response.status_code == 200, response.text
        return response.json()["id"]

    def order(self, endpoint: str, **body: Any) -> httpx2.Response:
        """Submits to an endpoint by its name."""
        return self.post(f"/v1/{endpoint}", json=body)

    def order_task(self, endpoint: str, **body: Any) -> str:
        """Submits to an endpoint that must accept. Returns the task's id."""
        response = self.order(endpoint, **body)
        assert response.status_code == 200, response.text
        return response.json()["id"]

    def poll(self, task_id: str, **query: Any) -> httpx2.Response:
        return self.get("/v1/get_result", params={"id": task_id, **query})


def refusal(response: httpx2.Response, status: int) -> str:
    """Checks the form of an error other than 422. Returns its detail."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert {"detail", "code"} <= set(response.json()) <= {"detail", "code", "hint"}
    assert isinstance(response.json()["detail"], str)
    return response.json()["detail"]


def problems(response: httpx2.Response) -> list[tuple[list[str], str]]:
    """Checks the form of a 422. Returns location and type of each entry."""
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json()["code"] == "invalid_request"
    entries = response.json()["detail"]
    assert entries
    for entry in entries:
        assert {"type", "loc", "msg"} <= set(entry) <= {"type", "loc", "msg", "ctx"}
        assert all(isinstance(part, str) for part in entry["loc"])
    return [(entry["loc"], entry["type"]) for entry in entries]
