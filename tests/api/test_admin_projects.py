"""Projects of an organization: made, looked at, changed."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import pytest
from support.client import Client, problems, refusal
from support.http_service import Service
from support.promises import promise

from serve_app.accounts.roles import Role

PATH = "/v1/admin/projects"
LIMITS = {"day": "limit_day", "week": "limit_week", "month": "limit_month"}


@pytest.fixture
def name() -> str:
    return f"studio-{uuid.uuid4().hex}"


def test_a_new_project_has_the_defaults(administrator: Client, organization: str, name: str) -> None:
    response = administrator.post(PATH, json={"id": name})
    assert response.status_code == 201
    made = response.json()
    spending = made.pop("spending")
    usual = {"weight": 1, "statuses": "full", "max_active": 24, "closed": False}
    assert made == {"id": name, "organization": organization, **usual}
    assert [each["window"] for each in spending] == ["day", "week", "month"]
    for each in spending:
        assert (each["spent"], each["limit"]) == (0, None)
        assert datetime.fromisoformat(each["resets"]).utcoffset() is not None
    assert administrator.get(f"{PATH}/{name}").json() == response.json()
    assert response.json() in administrator.get(PATH).json()["projects"]


def test_an_id_is_given_once_among_all_organizations(administrator: Client, service: Service, name: str) -> None:
    administrator.post(PATH, json={"id": name})
    with service.client(role=Role.ADMINISTRATOR, organization=service.worker.new_organization(0)) as stranger:
        for client in (administrator, stranger):
            for taken in (name, "default"):
                with service.unchanged():
                    assert refusal(client.post(PATH, json={"id": taken}), 409) == "There is a project of that id"


@pytest.mark.parametrize(
    "change",
    [{"weight": 2.5}, {"weight": 0.01}, {"weight": 100}, {"statuses": "basic"}, {"max_active": 3}],
    ids=lambda change: " ".join(f"{name} {value}" for name, value in change.items()),
)
def test_a_change_is_seen_at_once_and_null_takes_it_back(
    administrator: Client, operator: Client, change: dict[str, Any]
) -> None:
    path = f"{PATH}/{administrator.project}"
    before = administrator.get(path).json()
    response = operator.patch(path, json=change)
    assert response.status_code == 200
    assert response.json() == administrator.get(path).json() == before | change, "nothing else changed"
    assert operator.patch(path, json=dict.fromkeys(change)).json() == before


@pytest.mark.parametrize("change", [{"weight": 2}, {"max_active": 2}, {"weight": 2, "limit_day": 5}])
def test_what_a_project_takes_from_others_is_for_operators_to_set(
    administrator: Client, service: Service, change: dict[str, Any]
) -> None:
    name = next(iter(change))
    with service.unchanged():
        response = administrator.patch(f"{PATH}/{administrator.project}", json=change)
        assert refusal(response, 403) == f"Not allowed: {name} takes the permission to operate"


@promise("Limits", "Spending limits can be set per project on a daily, weekly and monthly basis, in credits")
@pytest.mark.parametrize("window", LIMITS)
def test_limits_are_shown_beside_what_was_spent(administrator: Client, window: str) -> None:
    path = f"{PATH}/{administrator.project}"
    cost = administrator.submit().json()["cost"]
    changed = administrator.patch(path, json={LIMITS[window]: 12.5}).json()
    shown = {each["window"]: (each["spent"], each["limit"]) for each in changed["spending"]}
    assert shown == {each: (cost, 12.5 if each == window else None) for each in LIMITS}
    removed = administrator.patch(path, json={LIMITS[window]: None}).json()
    assert {each["limit"] for each in removed["spending"]} == {None}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": -1}, "weight"),
        ({"weight": 5e-324}, "weight"),
        ({"weight": 0.0099}, "weight"),
        ({"weight": 100.1}, "weight"),
        ({"weight": "much"}, "weight"),
        ({"statuses": "some"}, "statuses"),
        ({"max_active": 0}, "max_active"),
        ({"max_active": 1.5}, "max_active"),
        ({"max_active": 1_000_001}, "max_active"),
        ({"limit_day": -1}, "limit_day"),
        ({"limit_week": 1e13}, "limit_week"),
        ({"limit_month": "none"}, "limit_month"),
        ({"organization": "default"}, "organization"),
        ({"id": "other"}, "id"),
    ],
)
def test_changes_that_are_refused(operator: Client, service: Service, change: dict[str, Any], field: str) -> None:
    with service.unchanged():
        response = operator.patch(f"{PATH}/{operator.project}", json={"weight": 1, **change})
        assert [loc for loc, _ in problems(response)] == [["body", field]]


def test_the_tasks_of_every_project_of_the_organization(administrator: Client, service: Service) -> None:
    with service.client(organization=administrator.organization) as client:
        tasks = [client.accepted() for _ in range(3)]
        found: list[str] = []
        query: dict[str, Any] = {"project": client.project, "limit": 2}
        while True:
            page = administrator.get("/v1/admin/tasks", params=query).json()
            found += [task["id"] for task in page["tasks"]]
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        client.delete(f"/v1/tasks/{tasks[0]}")
        active = administrator.get("/v1/admin/tasks", params={"project": client.project, "active": True}).json()
    assert sorted(found) == sorted(tasks)
    assert {task["id"] for task in active["tasks"]} == set(tasks[1:])


@pytest.mark.parametrize(
    ("query", "field"),
    [({}, "project"), ({"project": "x", "limit": 0}, "limit"), ({"project": "default", "cursor": "x"}, "cursor")],
)
def test_queries_for_tasks_that_are_refused(operator: Client, query: dict[str, Any], field: str) -> None:
    assert [loc for loc, _ in problems(operator.get("/v1/admin/tasks", params=query))] == [["query", field]]


def test_an_organization_makes_so_many_projects(
    administrator: Client, operator: Client, organization: str, service: Service, name: str
) -> None:
    most = service.settings.accounts.max_projects
    for number in range(most - len(administrator.get(PATH).json()["projects"])):
        assert administrator.post(PATH, json={"id": f"{name}-{number}"[-64:]}).status_code == 201
    with service.unchanged():
        told = refusal(administrator.post(PATH, json={"id": name}), 429)
    assert told == f"Too many projects: this organization may have {most}; an operator may make more for it"
    assert operator.post(PATH, params={"organization": organization}, json={"id": name}).status_code == 201
