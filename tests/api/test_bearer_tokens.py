"""Tokens of an issuer in `Authorization`, in place of a key. `accounts/bearer` tests which tokens are valid."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, running
from support.issuer import AUDIENCE, ISSUER, KEY, OTHER, make_claims, make_issuer
from support.promises import promise
from support.website import Website

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.settings import AccountSettings
from serve_app.api.bodies import KEYLESS_BYTES

UNREACHABLE = "https://away.test"
BODY = {"prompt": "a cat"}


@pytest.fixture(scope="module")
def trusting(
    web: Website, redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that trusts an issuer that publishes its keys, and one that is unreachable."""
    web.set_page("/jwks", json.dumps({"keys": [KEY.public_jwk()]}).encode())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        ports = {ISSUER: web.port, UNREACHABLE: closed.getsockname()[1]}
    issuers = [
        make_issuer(issuer, f"http://127.0.0.1:{port}/jwks", DEFAULT_ORGANIZATION) for issuer, port in ports.items()
    ]
    folder = tmp_path_factory.mktemp("trusting")
    with running(folder, redis_url, repository, accounts=AccountSettings(issuers=issuers)) as service:
        yield service


@pytest.fixture
def project(trusting: Service) -> str:
    return trusting.worker.new_project(DEFAULT_ORGANIZATION)


@pytest.fixture
def bearer(trusting: Service) -> Iterator[httpx2.Client]:
    """A client without a key."""
    with httpx2.Client(base_url=trusting.base_url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def key_client(trusting: Service, project: str) -> Iterator[Client]:
    """A client with a key of the project."""
    with trusting.client(project) as client:
        yield client


def sign(project: str, key: Any = KEY, **changes: Any) -> str:
    """Returns a token of a developer, with the id of the published key."""
    return key.sign(make_claims(**{"project": project, "aud": AUDIENCE} | changes), kid=KEY.id)


def header(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


@promise("Decided: money, accounts", "claims map to project and role")
@promise("Authentication", "Tool-integration clients may sign in with OAuth instead of pasting keys")
def test_developer_submits_and_cancels_in_the_project_of_the_token(
    bearer: httpx2.Client, key_client: Client, project: str
) -> None:
    submitted = bearer.post(ENDPOINT, json=BODY, headers=header(sign(project)))
    assert submitted.status_code == 200, submitted.text
    task_id = submitted.json()["id"]
    for listed in (bearer.get("/v1/tasks", headers=header(sign(project), "BEARER")), key_client.get("/v1/tasks")):
        assert [task["id"] for task in listed.json()["tasks"]] == [task_id]
    assert bearer.delete(f"/v1/tasks/{task_id}", headers=header(sign(project))).status_code == 200
    assert key_client.poll(task_id).json()["status"] == "Error"


def test_viewers_token_reads_but_does_not_submit(trusting: Service, bearer: httpx2.Client, project: str) -> None:
    headers = header(sign(project, role="viewer"))
    assert bearer.get("/v1/tasks", headers=headers).status_code == 200
    with trusting.assert_unchanged():
        refusal(bearer.post(ENDPOINT, json=BODY, headers=headers), 403)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": 1_700_000_000}, "it has expired"),
        ({"key": OTHER}, "its signature is not valid"),
        ({"role": "operator"}, "its claim role must be one of administrator, developer, billing_manager, viewer"),
    ],
    ids=["expired", "signature", "operator"],
)
def test_error_has_the_reason_but_not_the_token(
    trusting: Service, bearer: httpx2.Client, project: str, changes: dict[str, Any], reason: str
) -> None:
    token = sign(project, **changes)
    for method, path in (("GET", "/v1/tasks"), ("POST", ENDPOINT)):
        with trusting.assert_unchanged():
            response = bearer.request(method, path, json=BODY, headers=header(token))
        assert refusal(response, 401) == f"Token refused: {reason}"
        assert f'error_description="{reason}"' in response.headers["www-authenticate"]
        assert [part for part in token.split(".") if part in response.text + str(response.headers)] == []


@pytest.mark.parametrize(
    ("authorization", "status", "detail"),
    [
        *((f"Bearer {bad}", 401, "Token refused: not a JWT") for bad in ("a.b.c", "cl\xe9", "x" * 8000)),
        *((none, 403, "Not authenticated") for none in ("", "Bearer", "Basic YWRhOnNlY3JldA==", "Bearertoken")),
    ],
    ids=lambda value: str(value)[:16],
)
def test_malformed_tokens_are_refused_and_other_schemes_ignored(
    bearer: httpx2.Client, authorization: str, status: int, detail: str
) -> None:
    headers: Any = {"Authorization": authorization.encode("latin-1")}
    assert refusal(bearer.get("/v1/tasks", headers=headers), status) == detail


def test_key_takes_precedence_over_a_token(bearer: httpx2.Client, key_client: Client, project: str) -> None:
    assert key_client.get("/v1/tasks", headers=header("nonsense")).status_code == 200
    response = bearer.get("/v1/tasks", headers={"x-key": "gen_wrong", **header(sign(project))})
    assert refusal(response, 403) == "Not authenticated - Invalid Authentication"


def test_token_is_refused_without_issuers_in_the_settings(client: Client, project: str) -> None:
    del client.headers["x-key"]
    response = client.get("/v1/tasks", headers=header(sign(project)))
    assert refusal(response, 401) == "Token refused: its issuer is not known here"


DECLARED = {"Content-Length": str(KEYLESS_BYTES + 1)}
CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.parametrize(
    ("framing", "changes", "status"),
    [
        (DECLARED, {"exp": 1_700_000_000}, 401),
        (CHUNKED, {"exp": 1_700_000_000}, 401),
        (DECLARED, {"key": OTHER}, 401),
        (DECLARED, {"role": "viewer"}, 403),
        (DECLARED, {"iss": UNREACHABLE}, 503),
    ],
    ids=["expired", "expired chunked", "signature", "viewer", "issuer unreachable"],
)
def test_large_body_without_a_valid_token_is_not_read(
    trusting: Service, project: str, framing: dict[str, str], changes: dict[str, Any], status: int
) -> None:
    """The client announces a body and never sends it."""
    connection = http.client.HTTPConnection(*trusting.address, timeout=60)
    with trusting.assert_unchanged():
        headers = {"Content-Type": "application/json"} | framing | header(sign(project, **changes))
        connection.request("POST", ENDPOINT, headers=headers)
        response = connection.getresponse()
        body = json.loads(response.read())
    connection.close()
    assert (response.status, "code" in body) == (status, True)
    assert ("invalid_token" in response.headers.get("WWW-Authenticate", "")) is (status == 401)
    assert ("Retry-After" in response.headers) is (status == 503)


@promise("Decided: money, accounts", "with protected-resource metadata (RFC 9728)")
def test_metadata_names_the_authorization_servers(bearer: httpx2.Client, trusting: Service) -> None:
    metadata = bearer.get("/.well-known/oauth-protected-resource").raise_for_status().json()
    assert metadata["resource"] == trusting.base_url
    assert metadata["authorization_servers"] == [trusting.base_url, ISSUER, UNREACHABLE]
    assert metadata["scopes_supported"] == ["developer", "viewer"]
    assert metadata["bearer_methods_supported"] == ["header"]
