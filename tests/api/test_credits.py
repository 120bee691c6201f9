"""Credits of an organization: holds, settlements, the ledger, grants, and spending limits of projects."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx2
import pytest
from support.http_client import Client, refusal
from support.http_service import Service
from support.images import image_file, to_base64
from support.promises import promise
from support.worker import Worker

from serve_app.api.routes.schemas import conceal_id
from serve_app.tasks.task import Status

GRANTS = "/v1/admin/credits/grants"
COST = 0.9
"""Price of the image that `Client.submit` asks for."""


@pytest.fixture
def client(service: Service, organization: str) -> Iterator[Client]:
    """A developer of an organization with 100 credits."""
    with service.client(organization=organization) as client:
        yield client


def get_credits(client: Client) -> float:
    response = client.get("/v1/credits")
    assert (response.status_code, set(response.json())) == (200, {"credits"})
    return response.json()["credits"]


def get_balance(administrator: Client) -> dict[str, float]:
    return administrator.get("/v1/admin/credits").json()


def get_ledger(administrator: Client, **query: Any) -> list[dict[str, Any]]:
    return administrator.get("/v1/admin/ledger", params=query).json()["entries"]


@promise("Decided: errors", '`"Insufficient credits"`; a spending limit reached: 402 naming window and limit')
def test_submission_with_too_few_credits_leaves_nothing(service: Service) -> None:
    with service.client(organization=service.worker.new_organization(COST - 0.001)) as client:
        for body in ({}, {"images": [to_base64(image_file())]}):
            with service.assert_unchanged():
                assert refusal(client.submit(**body), 402) == "Insufficient credits"
        assert client.get("/v1/tasks").json()["tasks"] == []
        assert get_credits(client) == COST - 0.001


def test_result_settles_at_the_quoted_price(client: Client, administrator: Client, worker: Worker) -> None:
    submitted = client.submit().json()
    assert "cost" not in client.poll(submitted["id"]).json()
    worker.deliver(submitted["id"], image_file(form="JPEG"))
    assert client.poll(submitted["id"]).json()["cost"] == submitted["cost"] == COST
    assert get_credits(client) == pytest.approx(100 - COST)
    balance = pytest.approx({"credits": 100 - COST, "held": 0, "spent": COST, "granted": 100})
    assert get_balance(administrator) == balance


# The ledger


def test_ledger_has_every_change_of_the_balance(client: Client, administrator: Client, worker: Worker) -> None:
    ready, failed = client.create_task(), client.create_task()
    worker.deliver(ready, image_file(form="JPEG"))
    worker.end(failed, Status.ERROR)
    entries = get_ledger(administrator)
    changes = [(entry["kind"], entry["credits"], entry["about"].get("task")) for entry in reversed(entries)]
    assert changes == [
        ("grant", 100, None),
        ("hold", -COST, conceal_id(ready)),
        ("hold", -COST, conceal_id(failed)),
        ("settle", 0, conceal_id(ready)),
        ("return", COST, conceal_id(failed)),
    ]
    own = administrator.create_task()
    assert get_ledger(administrator)[0]["about"]["task"] == own, "the id of a task of the caller's project"
    running = 0.0
    for entry in reversed(entries):
        assert set(entry) == {"id", "at", "kind", "credits", "balance", "about"}
        assert entry["at"] == pytest.approx(time.time(), abs=60)
        running += entry["credits"]
        assert entry["balance"] == pytest.approx(running)
    for entry in entries[:4]:
        assert (entry["about"]["project"], entry["about"]["endpoint"]) == (client.project, "gen-3-image-klein")
    assert [entry["about"]["cost"] for entry in entries[:2]] == ["0", "0.9"]
    assert get_credits(client) == pytest.approx(entries[0]["balance"] - COST)


def test_pages_of_the_ledger_have_every_entry_once(client: Client, administrator: Client) -> None:
    for _ in range(5):
        client.create_task()
    entries: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = administrator.get("/v1/admin/ledger", params=query).json()
        assert len(page["entries"]) <= 2
        entries += page["entries"]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert entries == get_ledger(administrator)
    assert [entry["kind"] for entry in entries] == ["hold"] * 5 + ["grant"]


# Grants


def grant(operator: Client, organization: str, **body: Any) -> httpx2.Response:
    return operator.post(GRANTS, params={"organization": organization}, json=body)


def test_grant_id_counts_once(operator: Client, client: Client, organization: str, service: Service) -> None:
    first = grant(operator, organization, id="june", credits=2.5, note="thanks")
    assert (first.status_code, first.json()) == (200, {"credits": 102.5, "repeated": False})
    for credits in (2.5, 7):
        with service.assert_unchanged():
            again = grant(operator, organization, id="june", credits=credits)
        assert (again.status_code, again.json()) == (200, {"credits": 102.5, "repeated": True})
    assert get_credits(client) == 102.5


def test_negative_grant_takes_back_the_balance_at_most(
    operator: Client, client: Client, administrator: Client, organization: str, service: Service
) -> None:
    grant(operator, organization, id="much", credits=1_234_467.125)
    with service.assert_unchanged():
        response = grant(operator, organization, id="back", credits=-1e9)
    assert refusal(response, 409) == "There are only 1234567.125 credits to take back"
    client.create_task()
    assert grant(operator, organization, id="back", credits=-1_234_566.225).json() == {"credits": 0, "repeated": False}
    assert get_balance(administrator) == pytest.approx({"credits": 0, "held": COST, "spent": 0, "granted": COST})


# Spending limits

WINDOWS = ["day", "week", "month"]
SPENDING_LIMIT_REACHED = re.compile(
    r"Spending limit reached: this project may spend (?P<limit>[\d.]+) credits per (?P<window>day|week|month) "
    r"and has spent (?P<spent>[\d.]+), including unfinished tasks; "
    r"the limit resets at (?P<resets>\d{4}-\d\d-\d\dT00:00:00Z)"
)


def limit_spending(administrator: Client, client: Client, **limits: float | None) -> dict[str, dict[str, Any]]:
    changes = {f"limit_{window}": amount for window, amount in limits.items()}
    response = administrator.patch(f"/v1/admin/projects/{client.project}", json=changes)
    assert response.status_code == 200, response.text
    return {each["window"]: each for each in response.json()["spending"]}


def refuse_submission(client: Client, service: Service, **body: Any) -> dict[str, str]:
    """Submits beyond a limit, which leaves nothing. Returns the fields of the error."""
    with service.assert_unchanged():
        response = client.submit(**body)
    match = SPENDING_LIMIT_REACHED.fullmatch(refusal(response, 402))
    assert match, response.text
    until = datetime.fromisoformat(match["resets"]).timestamp() - time.time()
    assert int(response.headers["retry-after"]) == pytest.approx(until, abs=60)
    assert int(response.headers["retry-after"]) >= 1
    return match.groupdict()


@promise("Decided: errors", "a spending limit reached: 402 naming window and limit")
@promise("Limits", "Spending limits can be set per project on a daily, weekly and monthly basis, in credits")
@promise(
    "Decided: money, accounts", "Spending limits per project by day, week (ISO) and month, UTC; held credits count."
)
@pytest.mark.parametrize("window", WINDOWS)
def test_lowest_spending_limit_refuses_submissions_until_changed(
    administrator: Client, client: Client, service: Service, window: str
) -> None:
    client.create_task()
    limits = dict.fromkeys(WINDOWS, 50.0) | {window: 2.5}
    spending = limit_spending(administrator, client, **limits)
    assert {name: (each["spent"], each["limit"]) for name, each in spending.items()} == {
        name: (COST, amount) for name, amount in limits.items()
    }
    client.create_task()
    error = refuse_submission(client, service, images=[to_base64(image_file())])
    assert datetime.fromisoformat(error.pop("resets")) == datetime.fromisoformat(spending[window]["resets"])
    assert error == {"window": window, "limit": "2.5", "spent": "1.8"}
    limit_spending(administrator, client, **{window: 3 * COST})
    client.create_task()
    limit_spending(administrator, client, **{window: 0})
    assert refuse_submission(client, service)["limit"] == "0"
    removed = limit_spending(administrator, client, **dict.fromkeys(WINDOWS))
    assert {each["limit"] for each in removed.values()} == {None}
    client.create_task()
