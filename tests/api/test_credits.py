"""Credits: held at submission, settled or given back at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.http_client import Client, refusal
from support.http_service import Service
from support.images import image_file, to_base64
from support.promises import promise
from support.worker import Worker

from serve_app.tasks.task import Status

COST = 0.9
"""Of the image that `Client.submit` asks for."""


@pytest.fixture
def client(service: Service, organization: str) -> Iterator[Client]:
    """Of an organization with 100 credits, which no other test uses."""
    with service.client(organization=organization) as client:
        yield client


@pytest.fixture
def poor(service: Service) -> Iterator[Client]:
    """Of an organization that can pay for just one image."""
    with service.client(organization=service.worker.new_organization(credits=1)) as client:
        yield client


def get_credits(client: Client) -> float:
    response = client.get("/v1/credits")
    assert (response.status_code, set(response.json())) == (200, {"credits"})
    return response.json()["credits"]


def balance(administrator: Client) -> dict[str, float]:
    return administrator.get("/v1/admin/credits").json()


@promise("Decided: errors", '`"Insufficient credits"`; a spending limit reached: 402 naming window and limit')
@pytest.mark.parametrize("credits", [0, 0.001, 0.899])
def test_with_too_few_credits_nothing_is_left_behind(service: Service, credits: float) -> None:
    with service.client(organization=service.worker.new_organization(credits)) as client:
        for body in ({}, {"images": [to_base64(image_file())]}):
            with service.assert_unchanged():
                assert refusal(client.submit(**body), 402) == "Insufficient credits"
        assert client.get("/v1/tasks").json()["tasks"] == []
        assert get_credits(client) == credits


@promise(
    "Decided: money, accounts",
    "Held at submission (402 when it does not fit), settled when `Ready`, given back in full on `Error` or moderation.",
)
def test_a_result_settles_at_the_price_quoted(client: Client, administrator: Client, worker: Worker) -> None:
    submitted = client.submit().json()
    assert "cost" not in client.poll(submitted["id"]).json()
    worker.deliver(submitted["id"], image_file(form="JPEG"))
    assert client.poll(submitted["id"]).json()["cost"] == submitted["cost"] == COST
    assert get_credits(client) == pytest.approx(100 - COST)
    assert balance(administrator) == pytest.approx({"credits": 100 - COST, "held": 0, "spent": COST, "granted": 100})


@promise(
    "Decided: money, accounts",
    "Held at submission (402 when it does not fit), settled when `Ready`, given back in full on `Error` or moderation.",
)
@pytest.mark.parametrize("status", [Status.ERROR, Status.REQUEST_MODERATED, Status.CONTENT_MODERATED, None])
def test_without_a_result_all_comes_back(
    client: Client, administrator: Client, worker: Worker, status: Status | None
) -> None:
    task_id = client.create_task()
    if status is None:
        assert client.delete(f"/v1/tasks/{task_id}").status_code == 200
    else:
        worker.end(task_id, status)
    assert client.poll(task_id).json().get("cost") is None
    assert get_credits(client) == 100
    assert balance(administrator) == {"credits": 100, "held": 0, "spent": 0, "granted": 100}


@promise("Decided: money, accounts", "Each settles exactly once.")
def test_cancelling_twice_gives_back_once(client: Client) -> None:
    client.create_task()
    task_id = client.create_task()
    for _ in range(2):
        client.delete(f"/v1/tasks/{task_id}")
    assert get_credits(client) == pytest.approx(100 - COST)
