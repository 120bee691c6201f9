"""Spending limits of projects, by day, week and month."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from support.http_client import Client, refusal
from support.http_service import Service
from support.images import image_file, to_base64
from support.promises import promise

WINDOWS = ["day", "week", "month"]
COST = 0.9
"""Of the image that `Client.submit` asks for."""
DETAIL = re.compile(
    r"Spending limit reached: this project may spend (?P<limit>[\d.]+) credits per (?P<window>day|week|month) "
    r"and has spent (?P<spent>[\d.]+), including unfinished tasks; "
    r"the limit resets at (?P<resets>\d{4}-\d\d-\d\dT00:00:00Z)"
)


@pytest.fixture
def client(service: Service, organization: str) -> Iterator[Client]:
    """A developer of a project in the administrator's organization."""
    with service.client(organization=organization) as client:
        yield client


def limit(administrator: Client, client: Client, **limits: float | None) -> dict[str, dict[str, Any]]:
    changes = {f"limit_{window}": amount for window, amount in limits.items()}
    response = administrator.patch(f"/v1/admin/projects/{client.project}", json=changes)
    assert response.status_code == 200, response.text
    return {each["window"]: each for each in response.json()["spending"]}


def parse_refusal(client: Client, service: Service, **body: Any) -> dict[str, str]:
    """What the refusal of a submission says, which leaves nothing behind."""
    with service.assert_unchanged():
        response = client.submit(**body)
    match = DETAIL.fullmatch(refusal(response, 402))
    assert match, response.text
    until = datetime.fromisoformat(match["resets"]).timestamp() - time.time()
    assert int(response.headers["retry-after"]) == pytest.approx(until, abs=60)
    assert int(response.headers["retry-after"]) >= 1
    return match.groupdict()


@promise("Decided: errors", "a spending limit reached: 402 naming window and limit")
@pytest.mark.parametrize("window", WINDOWS)
def test_the_refusal_tells_all_there_is_to_know(
    administrator: Client, client: Client, service: Service, window: str
) -> None:
    spending = limit(administrator, client, **{window: 2.5})
    client.create_task()
    client.create_task()
    fields = parse_refusal(client, service, images=[to_base64(image_file())])
    resets = datetime.fromisoformat(fields.pop("resets"))
    assert fields == {"window": window, "limit": "2.5", "spent": "1.8"}
    assert resets == datetime.fromisoformat(spending[window]["resets"])


@promise("Limits", "Spending limits can be set per project on a daily, weekly and monthly basis, in credits")
@pytest.mark.parametrize("window", WINDOWS)
def test_a_change_holds_for_the_next_submission(
    administrator: Client, client: Client, service: Service, window: str
) -> None:
    client.create_task()
    limit(administrator, client, **{window: 0})
    assert parse_refusal(client, service)["limit"] == "0"
    limit(administrator, client, **{window: 2 * COST})
    client.create_task()
    assert parse_refusal(client, service)["spent"] == "1.8"
    limit(administrator, client, **{window: None})
    client.create_task()


@promise(
    "Decided: money, accounts", "Spending limits per project by day, week (ISO) and month, UTC; held credits count."
)
@pytest.mark.parametrize(("lowest", "others"), [("day", 50), ("week", 50), ("month", 50)])
def test_the_lowest_limit_decides(
    administrator: Client, client: Client, service: Service, lowest: str, others: float
) -> None:
    limit(administrator, client, **{**dict.fromkeys(WINDOWS, others), lowest: 0.5})
    assert parse_refusal(client, service)["window"] == lowest
