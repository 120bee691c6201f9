"""Projects and organizations are apart: a foreign resource looks like one that does not exist."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.http_client import ENDPOINT, Client, problems, refusal
from support.http_service import Service
from support.images import image_file
from support.promises import promise
from support.tasks import QUEUE, new_task

from serve_app.accounts.roles import MEMBER_ROLES, Role
from serve_app.api.routes.schemas import conceal_id
from serve_app.storage import connection
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore

Request: TypeAlias = tuple[str, str, dict[str, Any], dict[str, Any] | None]
"""Method, path, query and body."""

NO_ORGANIZATION = "There is no such organization"
NO_PROJECT = "There is no such project"
NO_FINETUNE = "Finetune not found or access denied"
ORGANIZATION_QUERY = {"organization": "{organization}"}
PROJECT_QUERY = {"project": "{project}"}
FINETUNE = {"finetune_id": "{finetune}"}
DELETE_TASK: Request = ("DELETE", "/v1/tasks/{task}", {}, None)
READ_FINETUNE: Request = ("GET", "/v1/finetune_details", FINETUNE, None)
DELETE_FINETUNE: Request = ("POST", "/v1/delete_finetune", {}, FINETUNE)

NAMING_ANOTHER: list[tuple[Request, str]] = [
    (("GET", "/v1/usage", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/credits", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/ledger", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/audit", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/organizations/{organization}", {}, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/projects", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("POST", "/v1/admin/projects", ORGANIZATION_QUERY, {"id": "{new}"}), NO_ORGANIZATION),
    (("GET", "/v1/admin/members", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("PUT", "/v1/admin/members/{person}", ORGANIZATION_QUERY, {"role": "viewer"}), NO_ORGANIZATION),
    (("DELETE", "/v1/admin/members/{person}", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/licences", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/licences/usage", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/projects/{project}", {}, None), NO_PROJECT),
    (("PATCH", "/v1/admin/projects/{project}", {}, {"statuses": "full", "limit_day": 0}), NO_PROJECT),
    (("GET", "/v1/admin/tasks", PROJECT_QUERY, None), NO_PROJECT),
    (("GET", "/v1/admin/keys", PROJECT_QUERY, None), NO_PROJECT),
    (("POST", "/v1/admin/keys", {}, {"name": "x", "project": "{project}"}), NO_PROJECT),
    (("POST", "/v1/admin/projects/{project}/erasure", {}, {"project": "{project}"}), NO_PROJECT),
    (("DELETE", "/v1/admin/keys/{key}", {}, None), "There is no such key"),
]
"""Requests of an administrator to another organization. The last two are destructive."""

LISTS = [
    "/v1/tasks?limit=100",
    "/v1/my_finetunes",
    "/v1/usage",
    "/v1/usage?format=csv",
    "/v1/admin/keys",
    "/v1/admin/projects",
    "/v1/admin/members",
    "/v1/admin/ledger",
    "/v1/admin/audit",
]


@pytest.fixture(scope="module")
def tenants(service: Service) -> Iterator[Mapping[str, Client]]:
    """Administrators: the owner of some of everything, one of another project, one of another organization."""
    with ExitStack() as stack:

        def new_client(organization: str) -> Client:
            return stack.enter_context(service.client(role=Role.ADMINISTRATOR, organization=organization))

        first, second = (service.worker.new_organization(credits=100) for _ in range(2))
        tenants = {"owner": new_client(first), "neighbour": new_client(first), "stranger": new_client(second)}
        furnish(service, tenants["owner"])
        yield tenants


@pytest.fixture
def owner(tenants: Mapping[str, Client]) -> Client:
    return tenants["owner"]


@pytest.fixture
def names(owner: Client) -> Mapping[str, str]:
    """The names of what the owner has, and a new one."""
    return get_names(owner)


def furnish(service: Service, client: Client) -> None:
    """Adds a member, a ready task, an active one, and a tuned model."""
    worker = service.worker
    worker.run(worker.organizations.set_member(client.organization, "ann", Role.VIEWER, "test"))
    worker.deliver(client.create_task(), image_file(form="JPEG"))
    client.create_task()
    worker.new_finetune(client.project)


def get_names(client: Client) -> dict[str, str]:
    (key,) = client.get("/v1/admin/keys").json()["keys"]
    (finetune,) = client.get("/v1/my_finetunes").json()["finetunes"]
    (task,) = client.get("/v1/tasks", params={"active": True}).json()["tasks"]
    return {
        "organization": client.organization,
        "project": client.project,
        "key": key["id"],
        "finetune": finetune["finetune_id"],
        "task": task["id"],
        "person": "ann",
        "new": f"new-{uuid.uuid4().hex}",
    }


def ask(client: Client, request: Request, names: Mapping[str, str]) -> httpx2.Response:
    method, path, query, body = request

    def fill(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value.format(**names) if isinstance(value, str) else value for name, value in fields.items()}

    return client.request(method, path.format(**names), params=fill(query), json=None if body is None else fill(body))


def make_id(value: object) -> str | None:
    return f"{value[0]} {value[1]}" if isinstance(value, tuple) else ""


@pytest.mark.parametrize(("request_", "detail"), NAMING_ANOTHER, ids=make_id)
def test_foreign_organization_looks_like_a_missing_one(
    tenants: Mapping[str, Client], names: Mapping[str, str], service: Service, request_: Request, detail: str
) -> None:
    with service.assert_unchanged():
        for each in (names, dict.fromkeys(names, "none")):
            assert refusal(ask(tenants["stranger"], request_, each), 404) == detail


def test_operator_may_name_any_organization(administrator: Client, operator: Client, service: Service) -> None:
    furnish(service, administrator)
    names = get_names(administrator)
    for request, _ in NAMING_ANOTHER:
        response = ask(operator, request, names)
        assert response.status_code < 300, (request, response.text)


def test_operator_creates_resources_in_a_named_organization(administrator: Client, operator: Client) -> None:
    query = {"organization": administrator.organization}
    new = f"new-{uuid.uuid4().hex}"
    project = operator.post("/v1/admin/projects", params=query, json={"id": new})
    assert project.json()["organization"] == administrator.organization
    key = operator.post("/v1/admin/keys", json={"name": "x", "project": new}).json()
    credits = administrator.get("/v1/credits").json()
    assert administrator.get("/v1/credits", headers={"x-key": key["key"]}).json() == credits
    operator.patch(f"/v1/admin/projects/{administrator.project}", json={"weight": 2})
    newest = administrator.get("/v1/admin/audit", params={"limit": 1}).json()["changes"][0]
    assert (newest["action"], newest["subject"]) == ("change project", administrator.project)
    [own_key] = operator.get("/v1/admin/keys").json()["keys"]
    assert newest["actor"] == own_key["id"]


@pytest.mark.parametrize("path", LISTS)
def test_lists_show_nothing_of_another_organization(
    tenants: Mapping[str, Client], names: Mapping[str, str], path: str
) -> None:
    own, foreign = (tenants[name].get(path).text for name in ("owner", "stranger"))
    assert any(name in own for name in names.values())
    assert [name for name in names.values() if name in foreign] == []


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/my_finetunes", "/v1/admin/keys"])
def test_lists_of_a_project_show_nothing_of_its_neighbour(
    tenants: Mapping[str, Client], names: Mapping[str, str], path: str
) -> None:
    text = tenants["neighbour"].get(path).text
    assert [name for name in ("project", "key", "task", "finetune") if names[name] in text] == []


@pytest.mark.parametrize("outsider", ["stranger", "neighbour"])
@pytest.mark.parametrize(
    ("request_", "status", "detail"),
    [
        (DELETE_TASK, 404, "Task not found"),
        (READ_FINETUNE, 404, NO_FINETUNE),
        (DELETE_FINETUNE, 404, NO_FINETUNE),
        (("POST", f"{ENDPOINT}-finetuned", {}, {"prompt": "a cat"} | FINETUNE), 400, "Finetune not found or not ready"),
    ],
    ids=make_id,
)
def test_foreign_task_or_model_looks_like_a_missing_one(
    tenants: Mapping[str, Client],
    names: Mapping[str, str],
    service: Service,
    request_: Request,
    status: int,
    detail: str,
    outsider: str,
) -> None:
    with service.assert_unchanged():
        for each in (names, dict.fromkeys(names, "none")):
            assert refusal(ask(tenants[outsider], request_, each), status) == detail


@promise("Authentication", "Keys are scoped to a project.")
def test_idempotency_keys_belong_to_a_project(client: Client, other_client: Client) -> None:
    for each in (client, other_client):
        each.headers["Idempotency-Key"] = "the same"
    first, second = client.submit(), other_client.submit(steps=4)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["id"] != second.json()["id"]
    assert client.submit().json() == first.json()
    assert other_client.submit(steps=4).json() == second.json()


def test_administrator_sees_tasks_of_other_projects_concealed(tenants: Mapping[str, Client], owner: Client) -> None:
    neighbour = tenants["neighbour"]
    path = f"/v1/admin/projects/{owner.project}"
    assert neighbour.get(path).json() == owner.get(path).json()
    query = {"project": owner.project, "limit": "1"}
    first = neighbour.get("/v1/admin/tasks", params=query).json()
    second = neighbour.get("/v1/admin/tasks", params=query | {"cursor": first["next"]}).json()
    rows = owner.get("/v1/tasks").json()["tasks"]
    # Anyone who has an id can read the result, so ids are concealed as well as prompts and thumbnails.
    concealed = [row | {"prompt": None, "thumbnail": None, "id": conceal_id(row["id"])} for row in rows]
    assert first["tasks"] + second["tasks"] == concealed
    active = neighbour.get("/v1/admin/tasks", params={"project": owner.project, "active": True}).json()["tasks"]
    assert active == concealed[:1]
    own = owner.get("/v1/admin/tasks", params={"project": owner.project}).json()["tasks"]
    assert [row["id"] for row in own] == [row["id"] for row in rows]
    wrong = neighbour.get("/v1/admin/tasks", params=query | {"cursor": "1-2"})
    assert problems(wrong)[0][0] == ["query", "cursor"]


READING: list[Request] = [
    *(request for request, _ in NAMING_ANOTHER if request[0] == "GET"),
    *(("GET", path, {}, None) for path in LISTS),
    ("GET", "/v1/admin/tasks", {**PROJECT_QUERY, "limit": "1"}, None),
    ("GET", "/v1/admin/ledger", {"limit": "1000"}, None),
    ("GET", "/v1/authorizations", {}, None),
    ("GET", "/v1/videos", {}, None),
]


@pytest.mark.parametrize("role", MEMBER_ROLES)
def test_no_response_has_the_id_of_a_neighbours_task(
    owner: Client, names: Mapping[str, str], service: Service, role: Role
) -> None:
    ids = [row["id"] for row in owner.get("/v1/tasks").json()["tasks"]]
    with service.client(role=role, organization=owner.organization) as client:
        responses = [ask(client, request, names) for request in READING]
    readable = [response.text for response in responses if response.status_code == 200]
    assert len(readable) >= 10
    assert [text for text in readable if any(each in text for each in ids)] == []


NAMING_A_PERSON_OR_TASK: list[Request] = [
    ("GET", "/v1/tasks/{task}", {}, None),
    DELETE_TASK,
    ("DELETE", "/v1/tasks/{task}/result", {}, None),
    ("GET", "/v1/tasks/{task}/deliveries", {}, None),
    ("POST", "/v1/tasks/{task}/deliveries/replay", {}, {}),
    ("POST", "/v1/tasks/{task}/links", {}, {}),
    ("DELETE", "/v1/tasks/{task}/links", {}, None),
    ("GET", "/v1/videos/{task}", {}, None),
    ("GET", "/v1/videos/{task}/content", {}, None),
    ("DELETE", "/v1/videos/{task}", {}, None),
    READ_FINETUNE,
    DELETE_FINETUNE,
    ("GET", "/v1/admin/projects/{project}/erasure", {}, None),
    ("PUT", "/v1/admin/members/{person}", {}, {"role": "viewer"}),
    ("DELETE", "/v1/admin/members/{person}", {}, None),
    ("DELETE", "/v1/admin/people/{person}", {}, None),
    ("PUT", "/v1/session", {}, {"project": "{project}"}),
]


@pytest.fixture(scope="module")
def strangers(service: Service) -> Iterator[Mapping[Role, Client]]:
    """One client of each role, in another organization."""
    organization = service.worker.new_organization(credits=100)
    with ExitStack() as stack:
        yield {role: stack.enter_context(service.client(role=role, organization=organization)) for role in MEMBER_ROLES}


@pytest.mark.parametrize(
    "request_", [*NAMING_A_PERSON_OR_TASK, *(request for request, _ in NAMING_ANOTHER)], ids=make_id
)
def test_no_role_reads_or_changes_another_organization(
    names: Mapping[str, str], strangers: Mapping[Role, Client], service: Service, request_: Request
) -> None:
    for role, stranger in strangers.items():
        with service.assert_unchanged():
            response = ask(stranger, request_, names)
        assert response.status_code in (400, 403, 404, 409), (role, response.text)
        assert "prompt" not in response.text
        assert [each for each in names.values() if each in response.text] == [], role


MAX_WORK = 16
WORK = st.integers(1, MAX_WORK)
WEIGHTS = st.sampled_from([5e-324, 0.01, 0.5, 1, 100, 1e308])
ACTS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), WEIGHTS, WORK, st.booleans()), max_size=4)
"""Submissions of other projects: project, weight, work, and whether the task is cancelled at once."""
ROUNDS = st.lists(st.tuples(ACTS, WORK, WORK), min_size=2, max_size=8)


@settings(max_examples=20)
@given(rounds=ROUNDS)
def test_no_project_changes_the_order_of_two_others(redis_url: str, rounds: list[tuple[list[Any], int, int]]) -> None:
    asyncio.run(play_rounds(redis_url, rounds))


async def play_rounds(redis_url: str, rounds: list[tuple[list[Any], int, int]]) -> None:
    """Each round submits a task of both projects, and leases one task."""
    redis = connection.connect(redis_url)
    store = TaskStore(redis, f"tenants-{uuid.uuid4().hex}:", Limits(max_active=1000))
    waiting: dict[str, tuple[str, int]] = {}
    served = {"first": 0, "second": 0}

    async def submit(project: str, work: int, weight: float = 1.0) -> str:
        task = new_task(project=project, work=float(work), weight=weight)
        await store.submit(task)
        return task.id

    async def submit_both(*works: int) -> None:
        for project, work in zip(served, works, strict=True):
            waiting[await submit(project, work)] = (project, work)

    async def lease() -> bool:
        leases = await store.lease(QUEUE, 1, 1000)
        for project, work in (waiting.pop(each.id) for each in leases if each.id in waiting):
            served[project] += work
        if len({project for project, _ in waiting.values()}) == 2:
            assert abs(served["first"] - served["second"]) <= 2 * MAX_WORK
        return bool(leases)

    try:
        await submit_both(MAX_WORK, MAX_WORK)
        for acts, *works in rounds:
            for project, weight, work, cancelled in acts:
                task_id = await submit(project, work, weight)
                if cancelled:
                    await store.cancel(task_id, project)
            await submit_both(*works)
            await lease()
        while await lease():
            pass
        assert not waiting
    finally:
        await redis.aclose()
