"""Projects of an organization: made, looked at, changed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from support.http_client import HOOK, Client, problems, refusal
from support.http_service import Service
from support.promises import promise
from support.worker import Worker

from serve_app.accounts.roles import Role
from serve_app.api.routes.schemas import conceal_id

PATH = "/v1/admin/projects"
LIMITS = {"day": "limit_day", "week": "limit_week", "month": "limit_month"}


@pytest.fixture
def name() -> str:
    return f"studio-{uuid.uuid4().hex}"


def test_a_new_project_has_the_defaults(administrator: Client, organization: str, name: str) -> None:
    response = administrator.post(PATH, json={"id": name})
    assert response.status_code == 201
    project = response.json()
    spending = project.pop("spending")
    usual = {"weight": 1, "statuses": "full", "max_active": 24, "closed": False}
    assert project == {"id": name, "organization": organization, **usual}
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
            for existing_id in (name, "default"):
                with service.assert_unchanged():
                    assert refusal(client.post(PATH, json={"id": existing_id}), 409) == "There is a project of that id"


@pytest.mark.parametrize("change", [{"weight": 0.01}, {"weight": 100}, {"statuses": "basic"}, {"max_active": 3}])
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
    with service.assert_unchanged():
        response = administrator.patch(f"{PATH}/{administrator.project}", json=change)
        assert refusal(response, 403) == f"Not allowed: {name} needs the permission to operate"


@promise("Limits", "Spending limits can be set per project on a daily, weekly and monthly basis, in credits")
@pytest.mark.parametrize("window", LIMITS)
def test_limits_are_shown_beside_what_was_spent(administrator: Client, window: str) -> None:
    path = f"{PATH}/{administrator.project}"
    cost = administrator.submit().json()["cost"]
    changed = administrator.patch(path, json={LIMITS[window]: 12.5}).json()
    windows = {each["window"]: (each["spent"], each["limit"]) for each in changed["spending"]}
    assert windows == {each: (cost, 12.5 if each == window else None) for each in LIMITS}
    removed = administrator.patch(path, json={LIMITS[window]: None}).json()
    assert {each["limit"] for each in removed["spending"]} == {None}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": 0.0099}, "weight"),
        ({"weight": 100.1}, "weight"),
        ({"statuses": "some"}, "statuses"),
        ({"max_active": 0}, "max_active"),
        ({"max_active": 1_000_001}, "max_active"),
        ({"limit_day": -1}, "limit_day"),
        ({"limit_week": 1e13}, "limit_week"),
        ({"limit_month": "none"}, "limit_month"),
        ({"organization": "default"}, "organization"),
    ],
)
def test_changes_that_are_refused(operator: Client, service: Service, change: dict[str, Any], field: str) -> None:
    with service.assert_unchanged():
        response = operator.patch(f"{PATH}/{operator.project}", json={"weight": 1, **change})
        assert [loc for loc, _ in problems(response)] == [["body", field]]


def test_the_tasks_of_every_project_of_the_organization(administrator: Client, service: Service) -> None:
    with service.client(organization=administrator.organization) as client:
        tasks = [client.create_task() for _ in range(3)]
        ids: list[str] = []
        query: dict[str, Any] = {"project": client.project, "limit": 2}
        while True:
            page = administrator.get("/v1/admin/tasks", params=query).json()
            ids += [task["id"] for task in page["tasks"]]
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        client.delete(f"/v1/tasks/{tasks[0]}")
        active = administrator.get("/v1/admin/tasks", params={"project": client.project, "active": True}).json()
    assert sorted(ids) == sorted(map(conceal_id, tasks))
    assert {task["id"] for task in active["tasks"]} == set(map(conceal_id, tasks[1:]))


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
    with service.assert_unchanged():
        detail = refusal(administrator.post(PATH, json={"id": name}), 429)
    assert detail == f"Too many projects: this organization may have {most}; an operator may create more"
    assert operator.post(PATH, params={"organization": organization}, json={"id": name}).status_code == 201


KEYS_PATH = "/v1/admin/keys"
INVALID = "Not authenticated - Invalid Authentication"
FIELDS = {"id", "name", "project", "role", "hint", "created", "expires", "used"}


def create_project(client: Client, **new: Any) -> dict[str, Any]:
    response = client.post(KEYS_PATH, json={"name": "one", **new})
    assert response.status_code == 201, response.text
    return response.json()


def list_keys(client: Client, **query: Any) -> dict[str, dict[str, Any]]:
    return {key["id"]: key for key in client.get(KEYS_PATH, params=query).json()["keys"]}


def status_with(client: Client, secret: str) -> int:
    return client.get("/v1/tasks", headers={"x-key": secret}).status_code


@pytest.fixture
def developer(service: Service, organization: str) -> Iterator[Client]:
    with service.client(organization=organization) as client:
        yield client


@promise("Decided: money, accounts", "Keys: `gen_<random>`, shown once, only a hash stored.")
def test_a_new_key_is_shown_once_and_works(administrator: Client) -> None:
    key = create_project(administrator, name="laptop")
    secret = key.pop("key")
    assert set(key) == FIELDS
    assert (key["name"], key["project"], key["role"]) == ("laptop", administrator.project, "developer")
    assert (key["expires"], key["used"]) == (None, None)
    assert key["created"] == pytest.approx(time.time(), abs=60)
    assert secret.startswith(key["hint"])
    assert len(secret) > 40
    assert key in administrator.get(KEYS_PATH).json()["keys"]
    for path in (KEYS_PATH, "/v1/admin/audit", f"/v1/admin/projects/{administrator.project}"):
        assert secret[10:] not in administrator.get(path).text
    assert status_with(administrator, secret) == 200


@promise("Authentication", "Keys are scoped to a project.")
def test_the_list_is_of_one_project_with_the_oldest_first(administrator: Client, developer: Client) -> None:
    names = ["first", "second", "third"]
    for name in names:
        create_project(administrator, name=name, project=developer.project)
    assert [key["name"] for key in list_keys(administrator, project=developer.project).values()] == ["contract", *names]
    assert [key["name"] for key in list_keys(administrator).values()] == ["contract"]


@promise("Decided: errors", '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
def test_a_key_that_expired_or_was_revoked_is_no_key(developer: Client, service: Service) -> None:
    expired = service.worker.new_key(developer.project, organization=developer.organization, expires=time.time() - 1)
    key = create_project(developer)
    response = developer.delete(f"{KEYS_PATH}/{key['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert key["id"] not in list_keys(developer)
    for secret in (expired, key["key"]):
        assert refusal(developer.get("/v1/tasks", headers={"x-key": secret}), 403) == INVALID


@pytest.mark.parametrize("ago", [0, 1e12])
def test_a_key_cannot_have_expired_before_it_is_made(developer: Client, service: Service, ago: float) -> None:
    with service.assert_unchanged():
        response = developer.post(KEYS_PATH, json={"name": "late", "expires": time.time() - ago})
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
    with service.assert_unchanged():
        response = administrator.post(KEYS_PATH, json={"name": "one", **new})
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
            assert create_project(client, role=role.value)["role"] == role.value
            assert client.delete(f"{KEYS_PATH}/{key.id}").status_code == 204
            assert key.id not in list_keys(client)
        else:
            with service.assert_unchanged():
                refusal(client.post(KEYS_PATH, json={"name": "x", "role": role.value}), 403)
                refusal(client.delete(f"{KEYS_PATH}/{key.id}"), 403)


@promise("Decided: money, accounts", "Developer (keys of own project, submit)")
def test_a_developer_keeps_to_the_own_project(developer: Client, administrator: Client, service: Service) -> None:
    key = create_project(administrator, role="developer")
    with service.assert_unchanged():
        refusal(developer.post(KEYS_PATH, json={"name": "x", "project": administrator.project}), 403)
        refusal(developer.delete(f"{KEYS_PATH}/{key['id']}"), 403)
    assert status_with(developer, key["key"]) == 200


@promise("Decided: money, accounts", "Administrator (everything)")
def test_an_administrator_works_in_every_project_of_the_organization(administrator: Client, developer: Client) -> None:
    key = create_project(administrator, project=developer.project)
    assert key["project"] == developer.project
    assert key["id"] in list_keys(developer)
    assert administrator.delete(f"{KEYS_PATH}/{key['id']}").status_code == 204
    assert key["id"] not in list_keys(developer)


def test_a_project_has_so_many_keys(developer: Client, operator: Client, service: Service) -> None:
    most = service.settings.accounts.max_keys
    have = len(list_keys(developer))
    for _ in range(most - have):
        create_project(developer)
    with service.assert_unchanged():
        response = developer.post(KEYS_PATH, json={"name": "one more"})
        assert refusal(response, 429) == f"Too many keys: this project may have {most}; revoke one first"
    assert response.headers["retry-after"]
    create_project(operator, project=developer.project)
    for key_id in list(list_keys(developer))[1:3]:
        assert developer.delete(f"{KEYS_PATH}/{key_id}").status_code == 204
    create_project(developer)


MARK = "Zq7Wmarkk"


def erasure(asking: Client, project: str) -> dict[str, object]:
    path = f"/v1/admin/projects/{project}/erasure"
    response = asking.post(path, json={"project": project})
    assert response.status_code == 200, response.text
    assert asking.get(path).json() == response.json()
    return response.json()


def test_a_project_is_erased_and_closed_until_it_is_opened(
    administrator: Client, developer: Client, worker: Worker
) -> None:
    ready = developer.create_task(prompt=MARK, webhook_url=HOOK)
    worker.deliver(ready, MARK.encode())
    running = developer.create_task(prompt=MARK)
    lease = worker.take(running)
    waiting = developer.create_task(prompt=MARK)
    own = administrator.create_task()
    report = erasure(administrator, developer.project)
    assert report["project"] == developer.project
    assert report["done"] is not None
    for task_id in (ready, running, waiting):
        assert developer.poll(task_id).status_code == 404
    assert administrator.poll(own).status_code == 200
    assert worker.run(worker.tasks.heartbeat("flux3-klein", [(running, lease.attempt)])) == [(running, lease.attempt)]
    assert administrator.get("/v1/admin/credits").json()["held"] == 0.9, "that of its neighbour"
    assert refusal(developer.submit(), 403) == "Not allowed: this project is closed"
    assert administrator.get(f"/v1/admin/projects/{developer.project}").json()["closed"] is True
    key = f"{worker.tasks.prefix}erasure:{developer.project}"
    worker.run(worker.tasks.redis.hdel(key, "done"))  # type: ignore[arg-type]
    path = f"/v1/admin/projects/{developer.project}"
    refusal(administrator.patch(path, json={"closed": False}), 409)
    assert erasure(administrator, developer.project)["done"] is not None
    assert administrator.patch(path, json={"closed": False}).json()["closed"] is False
    assert developer.submit().status_code == 200


def test_nothing_is_erased_unless_the_project_is_named_once_more(administrator: Client, developer: Client) -> None:
    task_id = developer.create_task()
    path = f"/v1/admin/projects/{developer.project}/erasure"
    assert problems(administrator.post(path, json={"project": "another"})) == [(["body", "project"], "not_confirmed")]
    assert problems(administrator.post(path, json={})) == [(["body", "project"], "missing")]
    assert developer.poll(task_id).status_code == 200
    assert refusal(administrator.get(path), 404) == "This project was never erased"
    assert developer.submit().status_code == 200
