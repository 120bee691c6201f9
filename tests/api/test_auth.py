"""API keys, in `x-key` or `Authorization: Bearer`, and the table of roles and requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import httpx2
import pytest
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, described_paths
from support.openai_client import OPENAI, error
from support.promises import promise

from serve_app.accounts.roles import Role

MISSING = ("Not authenticated", "missing_key")
INVALID = ("Not authenticated - Invalid Authentication", "invalid_key")


def refusal_and_code(response: httpx2.Response) -> tuple[str, str]:
    return refusal(response, 403), response.json()["code"]


@promise(
    "Decided: errors",
    '403 `{"detail": "Not authenticated"}` when `x-key` is missing; 403 `"Not authenticated - Invalid '
    'Authentication"` when it is wrong, revoked or expired',
)
@pytest.mark.parametrize(("method", "path"), [("POST", ENDPOINT), ("GET", "/v1/tasks")])
@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({}, MISSING),
        ({"x-key": ""}, MISSING),
        ({"x-key": "gen_wrong"}, INVALID),
        ({"x-key": "x" * 4000}, INVALID),
        ({"x-key": "cl\xe9".encode("latin-1")}, INVALID),
        ({"Authorization": "Bearer gen_wrong"}, INVALID),
        ({"Authorization": "Bearer gen_"}, INVALID),
        ({"Authorization": "Bearer gen_a.b.c"}, INVALID),
    ],
    ids=lambda value: str(value)[:32],
)
def test_missing_and_invalid_keys_are_refused(
    client: Client, service: Service, method: str, path: str, headers: dict[str, Any], answer: tuple[str, str]
) -> None:
    del client.headers["x-key"]
    with service.assert_unchanged():
        response = client.request(method, path, json={"steps": "many"}, headers=headers)
    assert refusal_and_code(response) == answer
    assert "x-key" in response.json()["hint"] or "gen-serve keys create" in response.json()["hint"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/docs", "/llms.txt", "/openapi.json"])
def test_probes_and_documents_need_no_key(client: Client, path: str) -> None:
    del client.headers["x-key"]
    assert client.get(path).status_code == 200


def bearer(secret: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {secret}"}


def test_key_may_be_a_bearer_and_x_key_takes_precedence(client: Client, other_client: Client) -> None:
    task_id = client.create_task()
    with Client(str(client.base_url), "", "") as sdk:
        for scheme in ("Bearer", "BEARER"):
            (task,) = sdk.get("/v1/tasks", headers=bearer(client.secret, scheme)).json()["tasks"]
            assert task["id"] == task_id
    both = client.get("/v1/tasks", headers=bearer(other_client.secret))
    assert [task["id"] for task in both.json()["tasks"]] == [task_id]
    wrong = {"x-key": "gen_wrong", **bearer(client.secret)}
    assert refusal_and_code(client.get("/v1/tasks", headers=wrong)) == INVALID
    assert client.get("/v1/tasks", headers=bearer("gen_wrong")).status_code == 200


Cell: TypeAlias = tuple[str, str, dict[str, Any]]
"""Method, path of the OpenAPI document, and the body; for GET the query."""

A, D, B, V, O = (  # noqa: E741
    Role.ADMINISTRATOR,
    Role.DEVELOPER,
    Role.BILLING_MANAGER,
    Role.VIEWER,
    Role.OPERATOR,
)
EVERYONE = {A, D, B, V, O}

TABLE: list[tuple[Cell, set[Role]]] = [
    # Tasks and tuned models
    (("POST", "/v1/gen-3-image-klein", {"prompt": "a cat"}), {A, D, O}),
    (("GET", "/v1/tasks", {}), EVERYONE),
    (("GET", "/v1/tasks/{task_id}", {}), EVERYONE),
    (("DELETE", "/v1/tasks/{task_id}", {}), {A, D, O}),
    (("DELETE", "/v1/tasks/{task_id}/result", {}), {A, D, O}),
    (("GET", "/v1/tasks/{task_id}/deliveries", {}), EVERYONE),
    (("POST", "/v1/tasks/{task_id}/deliveries/replay", {}), {A, D, O}),
    (("POST", "/v1/tasks/{task_id}/links", {}), EVERYONE),
    (("DELETE", "/v1/tasks/{task_id}/links", {}), {A, D, O}),
    (("POST", "/v1/finetunes", {}), {A, D, O}),
    (("POST", "/v1/uploads", {}), {A, D, O}),
    (("GET", "/v1/my_finetunes", {}), EVERYONE),
    (("GET", "/v1/finetune_details", {"finetune_id": "none"}), EVERYONE),
    (("POST", "/v1/delete_finetune", {"finetune_id": "none"}), {A, D, O}),
    (("POST", "/v1/licenses/models/{model_slug}/usage", {}), {A, D, O}),
    # Authorizations of OAuth clients
    (("GET", "/v1/authorizations", {}), EVERYONE),
    (("DELETE", "/v1/authorizations/{authorization_id}", {}), EVERYONE),
    # Requests of OpenAI's form with bodies that fail validation
    (("POST", "/v1/images/generations", {"prompt": ""}), {A, D, O}),
    (("POST", "/v1/images/edits", {"prompt": ""}), {A, D, O}),
    (("POST", "/v1/videos", {"prompt": ""}), {A, D, O}),
    (("GET", "/v1/videos", {}), EVERYONE),
    (("GET", "/v1/videos/{task_id}", {}), EVERYONE),
    (("GET", "/v1/videos/{task_id}/content", {}), EVERYONE),
    (("DELETE", "/v1/videos/{task_id}", {}), {A, D, O}),
    (("GET", "/v1/models", {}), EVERYONE),
    (("GET", "/v1/models/{model}", {}), EVERYONE),
    # Money
    (("GET", "/v1/credits", {}), EVERYONE),
    (("POST", "/v1/pricing", {"path": ENDPOINT, "body": {"prompt": "a cat"}}), EVERYONE),
    (("GET", "/v1/usage", {}), {A, B, V, O}),
    (("GET", "/v1/admin/credits", {}), {A, B, V, O}),
    (("GET", "/v1/admin/ledger", {}), {A, B, V, O}),
    (("POST", "/v1/admin/credits/grants", {"id": "from permissions", "credits": 1}), {O}),
    # Organizations
    (("GET", "/v1/admin/organizations", {}), {O}),
    (("POST", "/v1/admin/organizations", {"id": "from-permissions"}), {O}),
    (("GET", "/v1/admin/organizations/{organization}", {}), EVERYONE),
    (("PUT", "/v1/admin/organizations/{organization}/safety/{endpoint}", {"tolerance": 5}), {O}),
    (("PUT", "/v1/admin/organizations/{organization}/ceilings/{category}", {"tolerance": 5}), {O}),
    # Projects
    (("GET", "/v1/admin/projects", {}), EVERYONE),
    (("POST", "/v1/admin/projects", {"id": "from-permissions"}), {A, O}),
    (("GET", "/v1/admin/projects/{project}", {}), EVERYONE),
    (("PATCH", "/v1/admin/projects/{project}", {"limit_day": 50}), {A, B, O}),
    (("PATCH", "/v1/admin/projects/{project}", {"limit_week": 50, "limit_month": None}), {A, B, O}),
    (("PATCH", "/v1/admin/projects/{project}", {"max_active": 20}), {O}),
    (("PATCH", "/v1/admin/projects/{project}", {"weight": 2}), {O}),
    (("PATCH", "/v1/admin/projects/{project}", {"statuses": "full"}), {A, O}),
    (("PATCH", "/v1/admin/projects/{project}", {"limit_day": 50, "statuses": "full"}), {A, O}),
    (("PATCH", "/v1/admin/projects/{project}", {"limit_day": 50, "weight": 2}), {O}),
    (("PATCH", "/v1/admin/projects/{project}", {"closed": False}), {A, O}),
    (("POST", "/v1/admin/projects/{project}/erasure", {"project": "another"}), {A, O}),
    (("GET", "/v1/admin/projects/{project}/erasure", {}), {A, O}),
    (("GET", "/v1/admin/tasks", {"project": "{project}"}), EVERYONE),
    # Members
    (("GET", "/v1/admin/members", {}), EVERYONE),
    (("PUT", "/v1/admin/members/{person}", {"role": "viewer"}), {A, O}),
    (("DELETE", "/v1/admin/members/{person}", {}), {A, O}),
    (("POST", "/v1/invitations", {"role": "viewer"}), {A, O}),
    (("DELETE", "/v1/admin/people/{person}", {}), {O}),
    # Keys
    (("GET", "/v1/admin/keys", {}), EVERYONE),
    (("GET", "/v1/admin/keys", {"project": "{neighbour}"}), EVERYONE),
    (("POST", "/v1/admin/keys", {"name": "x"}), {A, D, O}),
    (("POST", "/v1/admin/keys", {"name": "x", "role": "viewer"}), {A, O}),
    (("POST", "/v1/admin/keys", {"name": "x", "role": "operator"}), {O}),
    (("POST", "/v1/admin/keys", {"name": "x", "project": "{project}"}), {A, D, O}),
    (("POST", "/v1/admin/keys", {"name": "x", "project": "{neighbour}"}), {A, O}),
    (("DELETE", "/v1/admin/keys/{key_id}", {}), {A, D, O}),
    # Licences
    (("GET", "/v1/admin/licences", {}), EVERYONE),
    (("GET", "/v1/admin/licences/usage", {}), {A, B, V, O}),
    (("PUT", "/v1/admin/licences/{model}", {}), {O}),
    (("DELETE", "/v1/admin/licences/{model}", {}), {O}),
    # The audit log
    (("GET", "/v1/admin/audit", {}), {A, O}),
    # The fleet
    (("GET", "/v1/admin/fleet", {}), {O}),
]


@pytest.fixture(scope="module")
def clients(service: Service) -> Iterator[Mapping[Role, Client]]:
    """One client of each role, in one project."""
    organization = service.worker.new_organization(credits=100)
    project = service.worker.new_project(organization)
    with ExitStack() as stack:
        yield {
            role: stack.enter_context(service.client(project, role=role, organization=organization)) for role in Role
        }


@pytest.fixture(scope="module")
def names(service: Service, clients: Mapping[Role, Client]) -> Mapping[str, str]:
    """Values for the braces of the table. What the requests delete does not exist."""
    operator = clients[O]
    return {
        "organization": operator.organization,
        "project": operator.project,
        "neighbour": service.worker.new_project(operator.organization),
        "endpoint": "gen-2-max",
        "category": "violence",
        **dict.fromkeys(("task_id", "person", "key_id", "authorization_id", "model_slug", "model"), "none"),
    }


def ask(client: Client, names: Mapping[str, str], cell: Cell) -> httpx2.Response:
    method, path, fields = cell
    fields = {name: value.format(**names) if isinstance(value, str) else value for name, value in fields.items()}
    query, body = (fields, None) if method == "GET" else (None, fields)
    return client.request(method, path.format(**names), params=query, json=body)


def assert_denied(response: httpx2.Response, cell: Cell, status: int) -> str:
    """Returns the message. `status` is the one of OpenAI's form, where a missing key is a 401."""
    if cell[1].startswith(OPENAI):
        return error(response, status)["message"]
    return refusal(response, 403)


def make_id(value: object) -> str | None:
    return " ".join(map(str, value)) if isinstance(value, tuple) else None


@promise(
    "Decided: money, accounts",
    "Roles: Administrator (everything), Developer (keys of own project, submit), Billing Manager (credits, "
    "limits, ledger), Viewer (read).",
)
@pytest.mark.parametrize(("cell", "allowed"), TABLE, ids=make_id)
def test_role_may_make_exactly_these_requests(
    clients: Mapping[Role, Client], names: Mapping[str, str], service: Service, cell: Cell, allowed: set[Role]
) -> None:
    with service.assert_unchanged():
        for role in EVERYONE - allowed:
            assert assert_denied(ask(clients[role], names, cell), cell, 403).startswith("Not allowed"), role
    with Client(service.base_url, "", "") as anonymous:
        assert assert_denied(ask(anonymous, names, cell), cell, 401) == "Not authenticated"
    for role in allowed:
        response = ask(clients[role], names, cell)
        assert response.status_code != 403, (role, response.text)
        assert response.status_code < 500, (role, response.text)


def test_table_has_every_route_with_a_key(service: Service) -> None:
    described = {
        (method.upper(), path)
        for path, methods in described_paths(service.app).items()
        for method, route in methods.items()
        if path.startswith("/v1/admin") or route.get("security")
    }
    tried = {(method, path) for (method, path, _), _ in TABLE}
    # One generation endpoint stands for all.
    assert {route for route in described if not route[1].startswith("/v1/gen-")} == tried - {("POST", ENDPOINT)}


def test_viewer_may_price_large_requests_but_not_submit_them(clients: Mapping[Role, Client]) -> None:
    body = {"prompt": "a cat", "images": ["x" * 200_000]}
    assert clients[V].post("/v1/pricing", json={"path": ENDPOINT, "body": body}).status_code == 422
    assert clients[V].submit(**body).status_code == 403
    assert clients[D].submit(**body).status_code == 422
