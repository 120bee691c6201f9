"""Projects and organizations are apart: what is another's looks as if it were not there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.http_client import ENDPOINT, Client, problems, refusal
from support.http_service import Service, running
from support.images import image_file
from support.promises import promise
from support.worker import QUEUE, Worker

from serve_app.accounts.roles import MEMBER_ROLES, Role
from serve_app.api.routes.schemas import conceal_id
from serve_app.tasks.limits import TaskSettings
from serve_app.tasks.task import Status

Request: TypeAlias = tuple[str, str, dict[str, Any], dict[str, Any] | None]
"""Method, path, query and body."""

NO_ORGANIZATION = "There is no such organization"
NO_PROJECT = "There is no such project"
NO_KEY = "There is no such key"
ORGANIZATION_QUERY = {"organization": "{organization}"}
PROJECT_QUERY = {"project": "{project}"}

NAMING_ANOTHER: list[tuple[Request, str]] = [
    (("GET", "/v1/usage", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/credits", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/ledger", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/audit", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/organizations/{organization}", {}, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/projects", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("POST", "/v1/admin/projects", ORGANIZATION_QUERY, {"id": "{new}"}), NO_ORGANIZATION),
    (("GET", "/v1/admin/members", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("PUT", "/v1/admin/members/ann", ORGANIZATION_QUERY, {"role": "viewer"}), NO_ORGANIZATION),
    (("DELETE", "/v1/admin/members/ann", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/licences", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/licences/usage", ORGANIZATION_QUERY, None), NO_ORGANIZATION),
    (("GET", "/v1/admin/projects/{project}", {}, None), NO_PROJECT),
    (("PATCH", "/v1/admin/projects/{project}", {}, {"statuses": "full", "limit_day": 0}), NO_PROJECT),
    (("GET", "/v1/admin/tasks", PROJECT_QUERY, None), NO_PROJECT),
    (("GET", "/v1/admin/keys", PROJECT_QUERY, None), NO_PROJECT),
    (("POST", "/v1/admin/keys", {}, {"name": "x", "project": "{project}"}), NO_PROJECT),
    (("POST", "/v1/admin/projects/{project}/erasure", {}, {"project": "{project}"}), NO_PROJECT),
    (("DELETE", "/v1/admin/keys/{key}", {}, None), NO_KEY),
]

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


@pytest.fixture
def owner(administrator: Client, worker: Worker) -> Client:
    """Has some of everything."""
    worker.run(worker.organizations.set_member(administrator.organization, "ann", Role.VIEWER, "test"))
    worker.deliver(administrator.create_task(), image_file(form="JPEG"))
    administrator.create_task()
    worker.new_finetune(administrator.project)
    return administrator


@pytest.fixture
def stranger(service: Service, worker: Worker) -> Iterator[Client]:
    """An administrator, elsewhere."""
    with service.client(role=Role.ADMINISTRATOR, organization=worker.new_organization(credits=100)) as client:
        yield client


@pytest.fixture
def neighbour(service: Service, organization: str) -> Iterator[Client]:
    """An administrator of the same organization, in another project."""
    with service.client(role=Role.ADMINISTRATOR, organization=organization) as client:
        yield client


@pytest.fixture(params=["stranger", "neighbour"])
def outsider(request: pytest.FixtureRequest) -> Client:
    return request.getfixturevalue(request.param)


def get_names(client: Client) -> dict[str, str]:
    (key,) = client.get("/v1/admin/keys").json()["keys"]
    return {
        "organization": client.organization,
        "project": client.project,
        "key": key["id"],
        "new": f"new-{uuid.uuid4().hex}",
    }


def ask(client: Client, request: Request, names: Mapping[str, str]) -> httpx2.Response:
    method, path, query, body = request

    def fill(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value.format(**names) if isinstance(value, str) else value for name, value in fields.items()}

    return client.request(method, path.format(**names), params=fill(query), json=None if body is None else fill(body))


def get_finetune_id(client: Client) -> str:
    (finetune,) = client.get("/v1/my_finetunes").json()["finetunes"]
    return finetune["finetune_id"]


def get_active_task_id(client: Client) -> str:
    (task,) = client.get("/v1/tasks", params={"active": True}).json()["tasks"]
    return task["id"]


def make_id(value: object) -> str | None:
    return f"{value[0]} {value[1]}" if isinstance(value, tuple) else ""


@pytest.mark.parametrize(("request_", "detail"), NAMING_ANOTHER, ids=make_id)
def test_another_organization_and_what_is_not_there_look_alike(
    owner: Client, stranger: Client, service: Service, request_: Request, detail: str
) -> None:
    names = get_names(owner)
    with service.assert_unchanged():
        for each in (names, dict.fromkeys(names, "none")):
            assert refusal(ask(stranger, request_, each), 404) == detail


@pytest.mark.parametrize("request_", [request for request, _ in NAMING_ANOTHER], ids=make_id)
def test_an_operator_may_name_any(owner: Client, operator: Client, request_: Request) -> None:
    response = ask(operator, request_, get_names(owner))
    assert response.status_code < 300, response.text


def test_what_an_operator_makes_elsewhere_is_there(owner: Client, operator: Client) -> None:
    names = get_names(owner)
    project = operator.post(
        "/v1/admin/projects", params={"organization": owner.organization}, json={"id": names["new"]}
    )
    assert project.json()["organization"] == owner.organization
    key = operator.post("/v1/admin/keys", json={"name": "x", "project": names["new"]}).json()
    headers = {"x-key": key["key"]}
    assert owner.get("/v1/credits", headers=headers).json() == owner.get("/v1/credits").json()
    operator.patch(f"/v1/admin/projects/{owner.project}", json={"weight": 2})
    newest = owner.get("/v1/admin/audit", params={"limit": 1}).json()["changes"][0]
    assert (newest["action"], newest["subject"]) == ("change project", owner.project)
    assert newest["actor"] == get_names(operator)["key"]


@pytest.mark.parametrize("path", LISTS)
def test_lists_hold_nothing_of_another_organization(owner: Client, stranger: Client, path: str) -> None:
    own = [*get_names(owner).values(), get_active_task_id(owner), get_finetune_id(owner), "ann"]
    assert any(name in owner.get(path).text for name in own), "the owner sees some"
    text = stranger.get(path).text
    assert [name for name in own if name in text] == []


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/my_finetunes", "/v1/admin/keys"])
def test_lists_of_a_project_hold_nothing_of_its_neighbour(owner: Client, neighbour: Client, path: str) -> None:
    text = neighbour.get(path).text
    for name in (owner.project, get_names(owner)["key"], get_active_task_id(owner), get_finetune_id(owner)):
        assert name not in text


def test_tasks_of_others_cannot_be_cancelled(owner: Client, outsider: Client, service: Service) -> None:
    with service.assert_unchanged():
        for task_id in (get_active_task_id(owner), "none"):
            assert refusal(outsider.delete(f"/v1/tasks/{task_id}"), 404) == "Task not found"


@promise("Decided: tuned models", 'Unknown or foreign id: 400 `"Finetune not found or not ready"`.')
def test_tuned_models_of_others_cannot_be_seen_used_or_deleted(
    owner: Client, outsider: Client, service: Service
) -> None:
    with service.assert_unchanged():
        for finetune_id in (get_finetune_id(owner), "none"):
            response = outsider.get("/v1/finetune_details", params={"finetune_id": finetune_id})
            deleted = outsider.post("/v1/delete_finetune", json={"finetune_id": finetune_id})
            used = outsider.post(f"{ENDPOINT}-finetuned", json={"prompt": "a cat", "finetune_id": finetune_id})
            assert refusal(response, 404) == refusal(deleted, 404) == "Finetune not found or access denied"
            assert refusal(used, 400) == "Finetune not found or not ready"


@promise("Authentication", "Keys are scoped to a project.")
def test_idempotency_keys_of_different_projects_do_not_meet(owner: Client, outsider: Client) -> None:
    for client in (owner, outsider):
        client.headers["Idempotency-Key"] = "the same"
    first, second = owner.submit(), outsider.submit(steps=4)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["id"] != second.json()["id"]
    assert owner.submit().json() == first.json()
    assert outsider.submit(steps=4).json() == second.json()


def test_neighbours_administer_each_other(owner: Client, neighbour: Client) -> None:
    path = f"/v1/admin/projects/{owner.project}"
    assert neighbour.get(path).json() == owner.get(path).json()
    query = {"project": owner.project, "limit": "1"}
    first = neighbour.get("/v1/admin/tasks", params=query).json()
    second = neighbour.get("/v1/admin/tasks", params=query | {"cursor": first["next"]}).json()
    # What is asked for and what it shows is the project's own, and so are ids, by which anyone reads results.
    concealed = [
        row | {"prompt": None, "thumbnail": None, "id": conceal_id(row["id"])}
        for row in owner.get("/v1/tasks").json()["tasks"]
    ]
    assert first["tasks"] + second["tasks"] == concealed
    own = owner.get("/v1/admin/tasks", params={"project": owner.project}).json()["tasks"]
    assert [row["id"] for row in own] == [row["id"] for row in owner.get("/v1/tasks").json()["tasks"]]
    wrong = neighbour.get("/v1/admin/tasks", params=query | {"cursor": "1-2"})
    assert problems(wrong)[0][0] == ["query", "cursor"]


@pytest.mark.parametrize("role", MEMBER_ROLES)
def test_no_id_of_a_neighbours_task_is_given_out(owner: Client, service: Service, role: Role) -> None:
    ids = [row["id"] for row in owner.get("/v1/tasks").json()["tasks"]]
    with service.client(role=role, organization=owner.organization) as neighbour:
        for path in EVERY_READING_PATH:
            if response := ask_if_readable(neighbour, path, get_names(owner)):
                assert [each for each in ids if each in response.text] == [], path


EVERY_READING_PATH: list[Request] = [
    *((method, path, query, body) for (method, path, query, body), _ in NAMING_ANOTHER if method == "GET"),
    *(("GET", path, {}, None) for path in LISTS),
    ("GET", "/v1/admin/tasks", {**PROJECT_QUERY, "limit": "1"}, None),
    ("GET", "/v1/admin/ledger", {"limit": "1000"}, None),
    ("GET", "/v1/authorizations", {}, None),
    ("GET", "/v1/videos", {}, None),
]


def ask_if_readable(client: Client, request: Request, names: Mapping[str, str]) -> httpx2.Response | None:
    response = ask(client, request, names)
    return response if response.status_code == 200 else None


NAMING_A_PERSON_OR_TASK: list[Request] = [
    ("GET", "/v1/tasks/{task}", {}, None),
    ("DELETE", "/v1/tasks/{task}", {}, None),
    ("DELETE", "/v1/tasks/{task}/result", {}, None),
    ("GET", "/v1/tasks/{task}/deliveries", {}, None),
    ("POST", "/v1/tasks/{task}/deliveries/replay", {}, {}),
    ("POST", "/v1/tasks/{task}/links", {}, {}),
    ("DELETE", "/v1/tasks/{task}/links", {}, None),
    ("GET", "/v1/videos/{task}", {}, None),
    ("GET", "/v1/videos/{task}/content", {}, None),
    ("DELETE", "/v1/videos/{task}", {}, None),
    ("GET", "/v1/finetune_details", {"finetune_id": "{finetune}"}, None),
    ("POST", "/v1/delete_finetune", {}, {"finetune_id": "{finetune}"}),
    ("GET", "/v1/admin/projects/{project}/erasure", {}, None),
    ("PUT", "/v1/admin/members/{person}", {}, {"role": "viewer"}),
    ("DELETE", "/v1/admin/members/{person}", {}, None),
    ("DELETE", "/v1/admin/people/{person}", {}, None),
    ("PUT", "/v1/session", {}, {"project": "{project}"}),
]


@pytest.mark.parametrize("role", MEMBER_ROLES)
@pytest.mark.parametrize(
    "request_", [*NAMING_A_PERSON_OR_TASK, *(request for request, _ in NAMING_ANOTHER)], ids=make_id
)
def test_no_role_does_anything_to_another_organization(
    owner: Client, service: Service, worker: Worker, request_: Request, role: Role
) -> None:
    names = get_names(owner) | {
        "task": owner.get("/v1/tasks").json()["tasks"][0]["id"],
        "finetune": get_finetune_id(owner),
        "person": "ann",
    }
    with service.client(role=role, organization=worker.new_organization(credits=100)) as stranger:
        with service.assert_unchanged():
            response = ask(stranger, request_, names)
        assert response.status_code in (400, 403, 404, 409), response.text
        asked = [str(value) for value in names.values()]
        assert "prompt" not in response.text
        assert len([each for each in asked if each in response.text]) == 0, response.text


MANY = 1_000_000
MOST_STEPS = 16
"""Of one task: each is of one megapixel, so this is its work."""
PROJECTS = "/v1/admin/projects"

Act: TypeAlias = tuple[str, Any]
"""What the first organization does, and with what."""

extremes = st.sampled_from([5e-324, 1e-300, 0.01, 0.5, 1, 100, 1000, 1e308, None])
changes = st.fixed_dictionaries(
    {},
    optional={
        "weight": extremes,
        "max_active": st.sampled_from([0, 1, 24, MANY, None]),
        "statuses": st.sampled_from(["full", "basic", None]),
        "closed": st.booleans(),
        "limit_day": st.sampled_from([0, 5, 1e12, None]),
    },
)
acts: st.SearchStrategy[Act] = st.one_of(
    st.tuples(st.just("change"), changes),
    st.tuples(st.sampled_from(["new project", "new key", "member", "submit", "cancel", "erase"]), st.integers(0, 7)),
)
rounds = st.tuples(st.lists(acts, max_size=4), st.integers(1, MOST_STEPS), st.integers(1, MOST_STEPS))
"""What the first organization does, then the steps of a task of each of the others; then one task is leased."""


@dataclass
class Administrator:
    """Of the first organization: does what it is told, and takes no for an answer."""

    client: Client
    open_until: ExitStack
    projects: list[str]
    submitters: list[Client]
    tasks: list[tuple[Client, str]] = field(default_factory=list)

    def do(self, act: Act) -> None:
        what, value = act
        client = self.client
        match what:
            case "change":
                responses = [client.patch(f"{PROJECTS}/{project}", json=value) for project in self.projects]
            case "new project":
                project = f"project-{uuid.uuid4().hex}"
                responses = [client.post(PROJECTS, json={"id": project})]
                self.projects.append(project)
                self._new_key(project, Role.ADMINISTRATOR)
            case "new key":
                responses = [self._new_key(self.projects[value % len(self.projects)], Role.DEVELOPER)]
            case "member":
                role = MEMBER_ROLES[value % len(MEMBER_ROLES)]
                responses = [client.put(f"/v1/admin/members/person-{value}", json={"role": role})]
            case "erase":
                project = self.projects[value % len(self.projects)]
                responses = [client.post(f"{PROJECTS}/{project}/erasure", json={"project": project})]
            case "submit":
                submitter = self.submitters[value % len(self.submitters)]
                responses = [submitter.submit(width=1024, height=1024, steps=value + 1) for _ in range(2)]
                self.tasks += [(submitter, each.json()["id"]) for each in responses if each.is_success]
            case _:
                candidates = [self.tasks[value % len(self.tasks)]] if self.tasks else []
                responses = [submitter.delete(f"/v1/tasks/{task_id}") for submitter, task_id in candidates]
        assert all(response.status_code < 500 for response in responses), act

    def _new_key(self, project: str, role: Role) -> Any:
        response = self.client.post("/v1/admin/keys", json={"name": "k", "project": project, "role": role})
        secret = response.json()["key"]
        submitter = Client(str(self.client.base_url), project, secret)
        self.submitters.append(self.open_until.enter_context(submitter))
        return response


@dataclass
class Waiting:
    """The tasks of the other two organizations that wait, by their ids: whose, and their work."""

    work: dict[str, tuple[int, int]]

    def has_tasks(self, organization: int) -> bool:
        return any(whose == organization for whose, _ in self.work.values())


@pytest.fixture(scope="module")
def unlimited_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without bounds on numbers, so that the queue alone decides."""
    tasks = TaskSettings(max_queued=MANY, max_active=MANY, requests_per_s=MANY, burst=MANY, lease_s=3600)
    with running(tmp_path_factory.mktemp("crowded"), redis_url, repository, tasks=tasks) as service:
        yield service


def lease(worker: Worker) -> str | None:
    """Whose turn it is; the task is ended at once."""
    leases = worker.run(worker.tasks.lease(QUEUE, 1, MANY))
    for each in leases:
        assert worker.run(worker.tasks.complete(QUEUE, each.id, each.attempt, Status.ERROR))
    return leases[0].id if leases else None


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(played=st.lists(rounds, min_size=2, max_size=8))
def test_no_organization_changes_the_order_of_two_others(
    unlimited_service: Service, played: list[tuple[list[Act], int, int]]
) -> None:
    worker = unlimited_service.worker
    with ExitStack() as stack:

        def newcomer(role: Role = Role.DEVELOPER) -> Client:
            organization = worker.new_organization(credits=10_000)
            return stack.enter_context(unlimited_service.client(role=role, organization=organization))

        first, others = newcomer(Role.ADMINISTRATOR), (newcomer(), newcomer())
        administrator = Administrator(first, stack, [first.project], [first])
        waiting, served = Waiting({}), [0, 0]

        def submit(whose: int, steps: int) -> None:
            task_id = others[whose].create_task(width=1024, height=1024, steps=steps)
            waiting.work[task_id] = (whose, steps)

        def serve() -> bool:
            task_id = lease(worker)
            whose, work = waiting.work.pop(task_id or "", (0, 0))
            served[whose] += work
            if waiting.has_tasks(0) and waiting.has_tasks(1):
                assert abs(served[0] - served[1]) <= 2 * MOST_STEPS
            return task_id is not None

        for whose in (0, 1):
            submit(whose, MOST_STEPS)
        for setup, *steps in played:
            for act in setup:
                administrator.do(act)
            for whose, each in enumerate(steps):
                submit(whose, each)
            serve()
        while serve():
            pass
        assert not waiting.work
