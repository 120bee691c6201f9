"""Erasing what a project has, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.client import HOOK, Client, problems, refusal
from support.http_service import Service
from support.worker import Worker

from serve_app.accounts.roles import Role

MARK = "Zq7Wmarkk"


@pytest.fixture
def tenant(service: Service, organization: str) -> Iterator[Client]:
    """A developer of another project of the administrator's organization."""
    with service.client(organization=organization) as client:
        yield client


def erasure(asking: Client, project: str, confirmed: str | None = None) -> dict[str, object]:
    path = f"/v1/admin/projects/{project}/erasure"
    response = asking.post(path, json={"project": project if confirmed is None else confirmed})
    assert response.status_code == 200, response.text
    assert asking.get(path).json() == response.json()
    return response.json()


def test_a_project_is_erased_and_closed_until_it_is_opened(
    administrator: Client, tenant: Client, worker: Worker
) -> None:
    ready = tenant.accepted(prompt=MARK, webhook_url=HOOK)
    worker.deliver(ready, MARK.encode())
    running = tenant.accepted(prompt=MARK)
    lease = worker.take(running)
    waiting = tenant.accepted(prompt=MARK)
    own = administrator.accepted()
    told = erasure(administrator, tenant.project)
    assert told["project"] == tenant.project
    assert told["done"] is not None
    for task_id in (ready, running, waiting):
        assert tenant.poll(task_id).status_code == 404
    assert administrator.poll(own).status_code == 200
    assert worker.run(worker.tasks.heartbeat("flux3-klein", [(running, lease.attempt)])) == [(running, lease.attempt)]
    assert administrator.get("/v1/admin/credits").json()["held"] == 0.9, "that of its neighbour"
    assert refusal(tenant.submit(), 403) == "Not allowed: this project is closed"
    assert administrator.get(f"/v1/admin/projects/{tenant.project}").json()["closed"] is True
    opened = administrator.patch(f"/v1/admin/projects/{tenant.project}", json={"closed": False})
    assert opened.json()["closed"] is False
    assert tenant.submit().status_code == 200


def test_nothing_is_erased_unless_the_project_is_named_once_more(administrator: Client, tenant: Client) -> None:
    task_id = tenant.accepted()
    path = f"/v1/admin/projects/{tenant.project}/erasure"
    assert problems(administrator.post(path, json={"project": "another"})) == [(["body", "project"], "not_confirmed")]
    assert problems(administrator.post(path, json={})) == [(["body", "project"], "missing")]
    assert tenant.poll(task_id).status_code == 200
    assert refusal(administrator.get(path), 404) == "Nothing of this project was erased"
    assert tenant.submit().status_code == 200


def test_a_project_of_others_is_not_there(administrator: Client, client: Client, service: Service) -> None:
    task_id = client.accepted()
    path = f"/v1/admin/projects/{client.project}/erasure"
    assert refusal(administrator.post(path, json={"project": client.project}), 404) == "There is no such project"
    assert client.poll(task_id).status_code == 200
    with service.client(role=Role.OPERATOR) as operator:
        assert erasure(operator, client.project)["done"] is not None
    assert client.poll(task_id).status_code == 404


def test_a_project_that_is_being_erased_can_not_be_opened(
    administrator: Client, tenant: Client, worker: Worker
) -> None:
    erasure(administrator, tenant.project)
    key = f"{worker.tasks.prefix}erasure:{tenant.project}"
    worker.run(worker.tasks.redis.hdel(key, "done"))  # type: ignore[arg-type]
    opening = administrator.patch(f"/v1/admin/projects/{tenant.project}", json={"closed": False})
    assert refusal(opening, 409) == "This project is being erased: have that done first, then open it"
    assert erasure(administrator, tenant.project)["done"] is not None
    assert administrator.patch(f"/v1/admin/projects/{tenant.project}", json={"closed": None}).status_code == 200
