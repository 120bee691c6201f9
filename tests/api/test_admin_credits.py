"""Credits of an organization in full: the ledger, and what operators grant."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from support.http_client import Client, problems, refusal
from support.http_service import Service
from support.images import image_file
from support.promises import promise
from support.worker import Worker

from serve_app.api.routes.schemas import conceal_id
from serve_app.tasks.task import Status

GRANTS = "/v1/admin/credits/grants"
COST = 0.9
"""Of the image that `Client.submit` asks for."""


@pytest.fixture
def client(service: Service, organization: str) -> Iterator[Client]:
    """Of an organization with 100 credits, which no other test uses."""
    with service.client(organization=organization) as client:
        yield client


def get_credits(client: Client) -> float:
    response = client.get("/v1/credits")
    assert (response.status_code, set(response.json())) == (200, {"credits"})
    return response.json()["credits"]


def balance(administrator: Client) -> dict[str, float]:
    return administrator.get("/v1/admin/credits").json()


def ledger(administrator: Client, **query: Any) -> list[dict[str, Any]]:
    return administrator.get("/v1/admin/ledger", params=query).json()["entries"]


def test_the_ledger_tells_of_every_change_of_the_balance(client: Client, administrator: Client, worker: Worker) -> None:
    ready, failed = client.create_task(), client.create_task()
    worker.deliver(ready, image_file(form="JPEG"))
    worker.end(failed, Status.ERROR)
    entries = ledger(administrator)
    changes = [(entry["kind"], entry["credits"], entry["about"].get("task")) for entry in reversed(entries)]
    assert changes == [
        ("grant", 100, None),
        ("hold", -COST, conceal_id(ready)),
        ("hold", -COST, conceal_id(failed)),
        ("settle", 0, conceal_id(ready)),
        ("return", COST, conceal_id(failed)),
    ]
    own = administrator.create_task()
    assert ledger(administrator)[0]["about"]["task"] == own, "of the project of the key"
    running = 0.0
    for entry in reversed(entries):
        assert set(entry) == {"id", "at", "kind", "credits", "balance", "about"}
        assert entry["at"] == pytest.approx(time.time(), abs=60)
        running += entry["credits"]
        assert entry["balance"] == pytest.approx(running)
    for entry in entries[:4]:
        assert (entry["about"]["project"], entry["about"]["endpoint"]) == (client.project, "gen-3-image-klein")
    assert entries[1]["about"]["cost"] == "0.9", "of the one that was settled"
    assert entries[0]["about"]["cost"] == "0"
    assert get_credits(client) == pytest.approx(entries[0]["balance"] - COST)


@pytest.mark.parametrize("limit", [1, 6, 1000])
def test_the_pages_of_the_ledger_hold_every_entry_once(client: Client, administrator: Client, limit: int) -> None:
    for _ in range(5):
        client.create_task()
    entries: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = administrator.get("/v1/admin/ledger", params=query).json()
        assert len(page["entries"]) <= limit
        entries += page["entries"]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert entries == ledger(administrator)
    assert [entry["kind"] for entry in entries] == ["hold"] * 5 + ["grant"]


def grant(operator: Client, organization: str, **body: Any) -> httpx2.Response:
    return operator.post(GRANTS, params={"organization": organization}, json=body)


def test_a_grant_is_made_once(operator: Client, client: Client, organization: str, service: Service) -> None:
    first = grant(operator, organization, id="june", credits=2.5, note="thanks")
    assert (first.status_code, first.json()) == (200, {"credits": 102.5, "repeated": False})
    for credits in (2.5, 7):
        with service.assert_unchanged():
            again = grant(operator, organization, id="june", credits=credits)
        assert (again.status_code, again.json()) == (200, {"credits": 102.5, "repeated": True})
    assert get_credits(client) == 102.5


def test_credits_are_taken_back_as_far_as_there_are_any(
    operator: Client, client: Client, administrator: Client, organization: str, service: Service
) -> None:
    client.create_task()
    with service.assert_unchanged():
        response = grant(operator, organization, id="back", credits=-100)
    assert refusal(response, 409) == "There are only 99.1 credits to take back"
    assert grant(operator, organization, id="back", credits=-99.1).json() == {"credits": 0, "repeated": False}
    assert balance(administrator) == pytest.approx({"credits": 0, "held": COST, "spent": 0, "granted": COST})


@promise("Decided: money, accounts", '`GET /v1/credits` → `{"credits": n}`.')
def test_what_is_left_is_told_in_full(operator: Client, organization: str) -> None:
    grant(operator, organization, id="much", credits=1_234_467.125)
    response = grant(operator, organization, id="back", credits=-1e9)
    assert refusal(response, 409) == "There are only 1234567.125 credits to take back"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"id": "", "credits": 1}, "id"),
        ({"id": "x" * 101, "credits": 1}, "id"),
        ({"id": "x"}, "credits"),
        ({"id": "x", "credits": 1e13}, "credits"),
        ({"id": "x", "credits": float("nan")}, "credits"),
        ({"id": "x", "credits": 1, "note": "x" * 501}, "note"),
    ],
)
def test_grants_that_are_refused(
    operator: Client, organization: str, service: Service, body: dict[str, Any], field: str
) -> None:
    with service.assert_unchanged():
        response = operator.post(
            GRANTS,
            params={"organization": organization},
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        assert [loc for loc, _ in problems(response)] == [["body", field]]
