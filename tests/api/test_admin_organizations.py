"""Organizations: made by operators, seen by those who belong to them."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from support.client import Client, problems, refusal
from support.http_service import Service

from serve_app.accounts.roles import Role

PATH = "/v1/admin/organizations"


@pytest.fixture
def name() -> str:
    return f"acme-{uuid.uuid4().hex}"


def test_a_new_organization_is_there_and_has_no_credits(operator: Client, name: str) -> None:
    response = operator.post(PATH, json={"id": name, "name": "Acme, Inc."})
    assert response.status_code == 201
    made = response.json()
    assert made.pop("created") == pytest.approx(time.time(), abs=60)
    assert made == {"id": name, "name": "Acme, Inc.", "safety": {}, "ceilings": {}}
    assert operator.get(f"{PATH}/{name}").json() == response.json()
    assert response.json() in operator.get(PATH).json()["organizations"]
    balance = operator.get("/v1/admin/credits", params={"organization": name}).json()
    assert balance == {"credits": 0, "held": 0, "spent": 0, "granted": 0}
    assert operator.get("/v1/admin/projects", params={"organization": name}).json() == {"projects": []}


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.DEVELOPER, Role.BILLING_MANAGER, Role.VIEWER])
def test_everyone_sees_the_own_one(service: Service, organization: str, role: Role) -> None:
    with service.client(role=role, organization=organization) as member:
        response = member.get(f"{PATH}/{organization}")
    assert (response.status_code, response.json()["id"]) == (200, organization)


def test_an_id_is_given_once(operator: Client, service: Service, name: str) -> None:
    operator.post(PATH, json={"id": name, "name": "first"})
    for taken in (name, "default"):
        with service.unchanged():
            response = operator.post(PATH, json={"id": taken, "name": "second"})
        assert refusal(response, 409) == "There is an organization of that id"
    assert operator.get(f"{PATH}/{name}").json()["name"] == "first"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "id"),
        ({"id": ""}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": "a:b"}, "id"),
        ({"id": "a/b"}, "id"),
        ({"id": "a\n"}, "id"),
        ({"id": ".hidden"}, "id"),
        ({"id": "a" * 65}, "id"),
        ({"id": "b\N{LATIN SMALL LETTER U WITH DIAERESIS}ro"}, "id"),
        ({"id": 3}, "id"),
        ({"id": "a", "name": "x" * 201}, "name"),
    ],
)
def test_what_no_organization_can_be_called(
    operator: Client, service: Service, body: dict[str, Any], field: str
) -> None:
    with service.unchanged():
        assert [loc for loc, _ in problems(operator.post(PATH, json=body))] == [["body", field]]
