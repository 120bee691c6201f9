"""API keys over HTTP: made, listed, revoked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.client import Client, problems, refusal
from support.http_service import Service
from support.promises import promise

from serve_app.accounts.roles import Role

PATH = "/v1/admin/keys"
INVALID = "Not authenticated - Invalid Authentication"
FIELDS = {"id", "name", "project", "role", "hint", "created", "expires", "used"}


def made(client: Client, **new: Any) -> dict[str, Any]:
    response = client.post(PATH, json={"name": "one", **new})
    assert response.status_code == 201, response.text
    return response.json()


def listed(client: Client, **query: Any) -> dict[str, dict[str, Any]]:
    return {key["id"]: key for key in client.get(PATH, params=query).json()["keys"]}


def status_with(client: Client, secret: str) -> int:
    return client.get("/v1/tasks", headers={"x-key": secret}).status_code


@pytest.fixture
def developer(service: Service, organization: str) -> Iterator[Client]:
    with service.client(organization=organization) as client:
        yield client


@promise("Decided: money, accounts", "Keys: `gen_<random>`, shown once, only a hash stored.")
def test_a_new_key_is_shown_once_and_works(developer: Client) -> None:
    key = made(developer, name="laptop")
    secret = key.pop("key")
    assert set(key) == FIELDS
    assert (key["name"], key["project"], key["role"]) == ("laptop", developer.project, "developer")
    assert (key["expires"], key["used"]) == (None, None)
    assert key["created"] == pytest.approx(time.time(), abs=60)
    assert secret.startswith(key["hint"])
    assert len(secret) > 40
    response = developer.get(PATH)
    assert key in response.json()["keys"]
    assert secret not in response.text
    assert status_with(developer, secret) == 200


@promise("Decided: money, accounts", "Keys: `gen_<random>`, shown once, only a hash stored.")
def test_no_list_and_no_log_tells_a_secret(administrator: Client) -> None:
    secret = made(administrator)["key"]
    for path in (PATH, "/v1/admin/audit", f"/v1/admin/projects/{administrator.project}"):
        text = administrator.get(path).text
        assert secret not in text
        assert secret[10:] not in text


@promise("Authentication", "Keys are scoped to a project.")
def test_the_list_is_of_one_project_with_the_oldest_first(administrator: Client, developer: Client) -> None:
    names = ["first", "second", "third"]
    for name in names:
        made(administrator, name=name, project=developer.project)
    assert [key["name"] for key in listed(administrator, project=developer.project).values()] == ["contract", *names]
    assert [key["name"] for key in listed(administrator).values()] == ["contract"]


@promise("Decided: errors", '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/credits", PATH])
def test_an_expired_key_is_no_key(developer: Client, service: Service, path: str) -> None:
    expired = service.worker.new_key(developer.project, organization=developer.organization, expires=time.time() - 1)
    assert refusal(developer.get(path, headers={"x-key": expired}), 403) == INVALID


@pytest.mark.parametrize("ago", [0, 1, 1e6, 1e12])
def test_a_key_cannot_have_expired_before_it_is_made(developer: Client, service: Service, ago: float) -> None:
    with service.unchanged():
        response = developer.post(PATH, json={"name": "late", "expires": time.time() - ago})
        assert problems(response) == [(["body", "expires"], "value_error")]


@pytest.mark.parametrize(
    ("new", "field"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"role": "king"}, "role"),
        ({"expires": "tomorrow"}, "expires"),
        ({"project": "x" * 65}, "project"),
    ],
)
def test_keys_that_are_refused(administrator: Client, service: Service, new: dict[str, Any], field: str) -> None:
    with service.unchanged():
        response = administrator.post(PATH, json={"name": "one", **new})
        assert [loc for loc, _ in problems(response)] == [["body", field]]


MAY_HAND_OUT = {
    "administrator": {"administrator", "developer", "billing_manager", "viewer"},
    "developer": {"developer"},
    "billing_manager": set[str](),
    "viewer": set[str](),
    "operator": {"administrator", "developer", "billing_manager", "viewer", "operator"},
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("giver", Role)
def test_nobody_hands_out_or_takes_away_more_than_they_have(
    service: Service, organization: str, giver: Role, role: Role
) -> None:
    allowed = role.value in MAY_HAND_OUT[giver.value]
    with service.client(organization=organization, role=giver) as client:
        key, _ = service.worker.run(
            service.worker.keys.create("there", client.project, role=role, organization=organization)
        )
        if allowed:
            assert made(client, role=role.value)["role"] == role.value
            assert client.delete(f"{PATH}/{key.id}").status_code == 204
            assert key.id not in listed(client)
        else:
            with service.unchanged():
                assert refusal(client.post(PATH, json={"name": "x", "role": role.value}), 403).startswith("Not allowed")
                assert refusal(client.delete(f"{PATH}/{key.id}"), 403).startswith("Not allowed")


@promise("Decided: money, accounts", "Developer (keys of own project, submit)")
def test_a_developer_keeps_to_the_own_project(developer: Client, administrator: Client, service: Service) -> None:
    key = made(administrator, role="developer")
    with service.unchanged():
        made_there = developer.post(PATH, json={"name": "x", "project": administrator.project})
        assert refusal(made_there, 403).startswith("Not allowed")
        assert refusal(developer.delete(f"{PATH}/{key['id']}"), 403).startswith("Not allowed")
    assert status_with(developer, key["key"]) == 200


@promise("Decided: money, accounts", "Administrator (everything)")
def test_an_administrator_works_in_every_project_of_the_organization(administrator: Client, developer: Client) -> None:
    key = made(administrator, project=developer.project)
    assert key["project"] == developer.project
    assert key["id"] in listed(developer)
    assert administrator.delete(f"{PATH}/{key['id']}").status_code == 204
    assert key["id"] not in listed(developer)


@promise("Decided: errors", '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
def test_a_revoked_key_is_no_key(developer: Client) -> None:
    key = made(developer)
    response = developer.delete(f"{PATH}/{key['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert key["id"] not in listed(developer)
    assert refusal(developer.get("/v1/tasks", headers={"x-key": key["key"]}), 403) == INVALID


def test_a_project_has_so_many_keys(developer: Client, operator: Client, service: Service) -> None:
    most = service.settings.accounts.max_keys
    have = len(listed(developer))
    for _ in range(most - have):
        made(developer)
    with service.unchanged():
        response = developer.post(PATH, json={"name": "one more"})
        assert refusal(response, 429) == f"Too many keys: this project may have {most}; revoke one first"
    assert response.headers["retry-after"]
    made(operator, project=developer.project)
    for key_id in list(listed(developer))[1:3]:
        assert developer.delete(f"{PATH}/{key_id}").status_code == 204
    made(developer)
