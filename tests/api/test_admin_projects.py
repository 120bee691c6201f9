"""Projects and keys: created, changed, listed and deleted by administrators."""

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

PATH = "/v1/admin/projects"


@pytest.fixture
def name() -> str:
    return f"studio-{uuid.uuid4().hex}"


def test_new_project_has_the_defaults(administrator: Client, organization: str, name: str) -> None:
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


def test_project_id_is_unique_among_all_organizations(administrator: Client, service: Service, name: str) -> None:
    administrator.post(PATH, json={"id": name})
    with service.client(role=Role.ADMINISTRATOR, organization=service.worker.new_organization(0)) as stranger:
        for client in (administrator, stranger):
            for existing_id in (name, "default"):
                with service.assert_unchanged():
                    assert refusal(client.post(PATH, json={"id": existing_id}), 409) == "There is a project of that id"


@pytest.mark.parametrize("change", [{"weight": 0.01}, {"weight": 100}, {"statuses": "basic"}, {"max_active": 3}])
def test_change_holds_at_once_and_null_restores_the_default(
    administrator: Client, operator: Client, change: dict[str, Any]
) -> None:
    path = f"{PATH}/{administrator.project}"
    before = administrator.get(path).json()
    response = operator.patch(path, json=change)
    assert response.status_code == 200
    assert response.json() == administrator.get(path).json() == before | change
    assert operator.patch(path, json=dict.fromkeys(change)).json() == before


def test_error_names_the_field_that_operators_set(administrator: Client) -> None:
    response = administrator.patch(f"{PATH}/{administrator.project}", json={"limit_day": 5, "weight": 2})
    assert refusal(response, 403) == "Not allowed: weight needs the permission to operate"


def test_number_of_projects_is_limited_except_for_operators(
    administrator: Client, operator: Client, organization: str, service: Service, name: str
) -> None:
    most = service.settings.accounts.max_projects
    for _ in range(most - len(administrator.get(PATH).json()["projects"]) - 1):
        service.worker.new_project(organization)
    assert administrator.post(PATH, json={"id": f"{name}-last"}).status_code == 201
    with service.assert_unchanged():
        detail = refusal(administrator.post(PATH, json={"id": name}), 429)
    assert detail == f"Too many projects: this organization may have {most}; an operator may create more"
    assert operator.post(PATH, params={"organization": organization}, json={"id": name}).status_code == 201


KEYS_PATH = "/v1/admin/keys"
INVALID = "Not authenticated - Invalid Authentication"
FIELDS = {"id", "name", "project", "role", "hint", "created", "expires", "used"}


def create_key(client: Client, **new: Any) -> dict[str, Any]:
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
def test_new_key_is_shown_once_and_works(administrator: Client) -> None:
    key = create_key(administrator, name="laptop")
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
def test_keys_of_a_project_are_listed_oldest_first(administrator: Client, developer: Client) -> None:
    names = ["first", "second", "third"]
    for name in names:
        create_key(administrator, name=name, project=developer.project)
    assert [key["name"] for key in list_keys(administrator, project=developer.project).values()] == ["contract", *names]
    assert [key["name"] for key in list_keys(administrator).values()] == ["contract"]


def test_expired_and_revoked_keys_are_invalid(developer: Client, service: Service) -> None:
    expired = service.worker.new_key(developer.project, organization=developer.organization, expires=time.time() - 1)
    key = create_key(developer)
    response = developer.delete(f"{KEYS_PATH}/{key['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert key["id"] not in list_keys(developer)
    for secret in (expired, key["key"]):
        assert refusal(developer.get("/v1/tasks", headers={"x-key": secret}), 403) == INVALID


@pytest.mark.parametrize(
    ("giver", "role", "allowed"),
    [
        (Role.DEVELOPER, Role.DEVELOPER, True),
        (Role.DEVELOPER, Role.VIEWER, False),
        (Role.DEVELOPER, Role.ADMINISTRATOR, False),
        (Role.ADMINISTRATOR, Role.VIEWER, True),
        (Role.ADMINISTRATOR, Role.OPERATOR, False),
        (Role.OPERATOR, Role.OPERATOR, True),
    ],
)
def test_keys_of_higher_roles_cannot_be_created_or_revoked(
    service: Service, organization: str, giver: Role, role: Role, allowed: bool
) -> None:
    with service.client(organization=organization, role=giver) as client:
        created = service.worker.keys.create("there", client.project, role=role, organization=organization)
        key, _ = service.worker.run(created)
        if allowed:
            assert create_key(client, role=role.value)["role"] == role.value
            assert client.delete(f"{KEYS_PATH}/{key.id}").status_code == 204
            assert key.id not in list_keys(client)
        else:
            with service.assert_unchanged():
                refusal(client.post(KEYS_PATH, json={"name": "x", "role": role.value}), 403)
                refusal(client.delete(f"{KEYS_PATH}/{key.id}"), 403)


@promise("Decided: money, accounts", "Developer (keys of own project, submit)")
def test_developer_manages_keys_of_the_own_project_only(
    developer: Client, administrator: Client, service: Service
) -> None:
    key = create_key(administrator, role="developer")
    with service.assert_unchanged():
        refusal(developer.post(KEYS_PATH, json={"name": "x", "project": administrator.project}), 403)
        refusal(developer.delete(f"{KEYS_PATH}/{key['id']}"), 403)
    assert status_with(developer, key["key"]) == 200


@promise("Decided: money, accounts", "Administrator (everything)")
def test_administrator_manages_keys_of_every_project(administrator: Client, developer: Client) -> None:
    key = create_key(administrator, project=developer.project)
    assert key["project"] == developer.project
    assert key["id"] in list_keys(developer)
    assert administrator.delete(f"{KEYS_PATH}/{key['id']}").status_code == 204
    assert key["id"] not in list_keys(developer)


def test_number_of_keys_is_limited_except_for_operators(developer: Client, operator: Client, service: Service) -> None:
    most = service.settings.accounts.max_keys
    for _ in range(most - len(list_keys(developer)) - 1):
        service.worker.new_key(developer.project, organization=developer.organization)
    create_key(developer)
    with service.assert_unchanged():
        response = developer.post(KEYS_PATH, json={"name": "one more"})
        assert refusal(response, 429) == f"Too many keys: this project may have {most}; revoke one first"
    assert response.headers["retry-after"]
    create_key(operator, project=developer.project)
    for key_id in list(list_keys(developer))[1:3]:
        assert developer.delete(f"{KEYS_PATH}/{key_id}").status_code == 204
    create_key(developer)


MARK = "Zq7Wmarkk"


def erase(client: Client, project: str) -> dict[str, object]:
    path = f"/v1/admin/projects/{project}/erasure"
    response = client.post(path, json={"project": project})
    assert response.status_code == 200, response.text
    assert client.get(path).json() == response.json()
    return response.json()


def test_erased_project_is_closed_until_it_is_opened(administrator: Client, developer: Client, worker: Worker) -> None:
    ready = developer.create_task(prompt=MARK, webhook_url=HOOK)
    worker.deliver(ready, MARK.encode())
    running = developer.create_task(prompt=MARK)
    lease = worker.take(running)
    waiting = developer.create_task(prompt=MARK)
    own = administrator.create_task()
    report = erase(administrator, developer.project)
    assert report["project"] == developer.project
    assert report["done"] is not None
    for task_id in (ready, running, waiting):
        assert developer.poll(task_id).status_code == 404
    assert administrator.poll(own).status_code == 200
    assert worker.run(worker.tasks.heartbeat("flux3-klein", [(running, lease.attempt)])) == [(running, lease.attempt)]
    assert administrator.get("/v1/admin/credits").json()["held"] == 0.9, "of the other project"
    assert refusal(developer.submit(), 403) == "Not allowed: this project is closed"
    assert administrator.get(f"/v1/admin/projects/{developer.project}").json()["closed"] is True
    key = f"{worker.tasks.prefix}erasure:{developer.project}"
    worker.run(worker.tasks.redis.hdel(key, "done"))  # type: ignore[arg-type]
    path = f"/v1/admin/projects/{developer.project}"
    refusal(administrator.patch(path, json={"closed": False}), 409)
    assert erase(administrator, developer.project)["done"] is not None
    assert administrator.patch(path, json={"closed": False}).json()["closed"] is False
    assert developer.submit().status_code == 200


def test_erasure_needs_the_project_id_as_confirmation(administrator: Client, developer: Client) -> None:
    task_id = developer.create_task()
    path = f"/v1/admin/projects/{developer.project}/erasure"
    assert problems(administrator.post(path, json={"project": "another"})) == [(["body", "project"], "not_confirmed")]
    assert problems(administrator.post(path, json={})) == [(["body", "project"], "missing")]
    assert developer.poll(task_id).status_code == 200
    assert refusal(administrator.get(path), 404) == "This project was never erased"
    assert developer.submit().status_code == 200
