"""Tokens of an issuer in `Authorization`, in place of a key."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, running
from support.promises import promise
from support.website import Website

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.roles import Role
from serve_app.accounts.settings import AccountSettings, IssuerSettings
from serve_app.api.bodies import KEYLESS_BYTES

ISSUER = "https://login.test"
ISSUER_AWAY = "https://away.test"
AUDIENCE = "https://media.test"
KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())
METADATA = "/.well-known/oauth-protected-resource"
LARGE = b'{"prompt": "a cat"}'.ljust(KEYLESS_BYTES + 1)

NO_KEY_SETS: dict[str, dict[str, Any]] = {
    "list": {"body": b"[]"},
    "html": {"body": b"<html>"},
    "other": {"body": b'{"maintenance": true}'},
    "empty": {"body": b'{"keys": []}'},
    "nested": {"body": b"[" * 20_000},
    "failure": {"body": b"{}", "status": 500},
    "missing": {"body": b"{}", "status": 404},
    "elsewhere": {"status": 302, "Location": "/jwks"},
    "large": {"body": b'{"keys": []}'.ljust(2**20)},
}
"""What issuers of these names publish in place of keys."""


@pytest.fixture(scope="module")
def trusting(
    web: Website, redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that trusts an issuer which publishes its keys, one which can't be reached, and careless ones."""
    form: Any = jwt.get_algorithm_by_name("ES256")
    key = {**form.to_jwk(KEY.public_key(), as_dict=True), "kid": "key", "alg": "ES256"}
    web.set_page("/jwks", json.dumps({"keys": [key]}).encode())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = closed.getsockname()[1]
    addresses = {ISSUER: f"http://127.0.0.1:{web.port}/jwks", ISSUER_AWAY: f"http://127.0.0.1:{away}/jwks"}
    for name, page in NO_KEY_SETS.items():
        web.set_page(f"/jwks/{name}", **page)
        addresses[f"https://{name}.test"] = f"http://127.0.0.1:{web.port}/jwks/{name}"
    issuers = [IssuerSettings(issuer=name, jwks_url=url, audience=AUDIENCE) for name, url in addresses.items()]
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
    """Holds a key of the project."""
    with trusting.client(project) as client:
        yield client


def token(project: str, key: ec.EllipticCurvePrivateKey = KEY, **changes: Any) -> str:
    """A developer's; a change to None leaves a claim out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 300, "project": project}
    claims = {**good, "role": "developer", **changes}
    present = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(present, key, "ES256", headers={"kid": "key"})


def carrying(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


def unsent(service: Service, headers: Mapping[str, str]) -> tuple[int, http.client.HTTPMessage, dict[str, Any]]:
    """The answer to a submission whose body is announced and never comes."""
    connection = http.client.HTTPConnection(*service.address, timeout=60)
    try:
        connection.putrequest("POST", ENDPOINT)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        with connection.getresponse() as response:
            return response.status, response.headers, json.loads(response.read())
    finally:
        connection.close()


@promise("Decided: money, accounts", "claims map to project and role")
@promise("Authentication", "Tool-integration clients may sign in with OAuth instead of pasting keys")
def test_a_developer_submits_and_cancels_in_the_project_of_the_token(
    bearer: httpx2.Client, key_client: Client, project: str
) -> None:
    with_token = carrying(token(project))
    submitted = bearer.post(ENDPOINT, json={"prompt": "a cat"}, headers=with_token)
    assert submitted.status_code == 200, submitted.text
    task_id = submitted.json()["id"]
    for listed in (bearer.get("/v1/tasks", headers=carrying(token(project), "BEARER")), key_client.get("/v1/tasks")):
        assert [task["id"] for task in listed.json()["tasks"]] == [task_id]
    assert bearer.delete(f"/v1/tasks/{task_id}", headers=with_token).status_code == 200
    assert key_client.poll(task_id).json()["status"] == "Error"


@promise("Decided: money, accounts", "claims map to project and role")
@pytest.mark.parametrize("role", ["viewer", "billing_manager"])
def test_the_role_of_a_token_holds(trusting: Service, bearer: httpx2.Client, project: str, role: str) -> None:
    headers = carrying(token(project, role=role))
    assert bearer.get("/v1/tasks", headers=headers).status_code == 200
    with trusting.assert_unchanged():
        refusal(bearer.post(ENDPOINT, json={"prompt": "a cat"}, headers=headers), 403)


def test_a_member_needs_no_role_in_the_token(trusting: Service, bearer: httpx2.Client, project: str) -> None:
    headers = carrying(token(project, role=None, sub="grace"))
    member = "/v1/admin/members/grace"
    with trusting.client(role=Role.ADMINISTRATOR) as administrator:
        assert bearer.get("/v1/tasks", headers=headers).status_code == 401
        assert administrator.put(member, json={"role": "viewer"}).status_code == 200
        assert bearer.get("/v1/tasks", headers=headers).status_code == 200
        assert bearer.post(ENDPOINT, json={"prompt": "a cat"}, headers=headers).status_code == 403
        assert administrator.delete(member).status_code == 204
        assert bearer.get("/v1/tasks", headers=headers).status_code == 401


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": 1_700_000_000}, "it has expired"),
    "other-audience": ({"aud": "https://other.test"}, "it is for another audience"),
    "no-expiry": ({"exp": None}, "it lacks the claim exp"),
    "unknown-issuer": ({"iss": "https://evil.test"}, "its issuer is not known here"),
    "stranger": ({"key": STRANGER}, "its signature is not valid"),
    "unknown-project": ({"project": "nowhere"}, "its claim project names no project that it may act in"),
    "operator": (
        {"role": "operator"},
        "its claim role must be one of administrator, developer, billing_manager, viewer",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_bad_token_is_told_why_and_not_repeated(
    trusting: Service, bearer: httpx2.Client, project: str, changes: dict[str, Any], reason: str
) -> None:
    bad = token(**{"project": project, **changes})
    for method, path in (("GET", "/v1/tasks"), ("POST", ENDPOINT)):
        with trusting.assert_unchanged():
            response = bearer.request(method, path, json={"prompt": "a cat"}, headers=carrying(bad))
        assert refusal(response, 401) == f"Token refused: {reason}"
        assert f'error_description="{reason}"' in response.headers["www-authenticate"]
        for part in bad.split("."):
            assert part not in response.text
            assert part not in str(response.headers)


@pytest.mark.parametrize(
    ("authorization", "status", "detail"),
    [
        *((f"Bearer {bad}", 401, "Token refused: not a JWT") for bad in ("nonsense", "a.b.c", "cl\xe9", "x" * 8000)),
        *((none, 403, "Not authenticated") for none in ("", "Bearer", "Basic YWRhOnNlY3JldA==", "Bearertoken")),
    ],
    ids=lambda value: str(value)[:16],
)
def test_what_is_no_token_is_refused_and_what_is_no_bearer_counts_as_none(
    bearer: httpx2.Client, authorization: str, status: int, detail: str
) -> None:
    headers: Any = {"Authorization": authorization.encode("latin-1")}
    assert refusal(bearer.get("/v1/tasks", headers=headers), status) == detail


def test_a_key_goes_before_a_token(bearer: httpx2.Client, key_client: Client, project: str) -> None:
    assert key_client.get("/v1/tasks", headers=carrying("nonsense")).status_code == 200
    response = bearer.get("/v1/tasks", headers={"x-key": "gen_wrong", **carrying(token(project))})
    assert refusal(response, 403) == "Not authenticated - Invalid Authentication"


def test_tokens_are_refused_where_no_issuer_is_trusted(service: Service, project: str) -> None:
    response = httpx2.get(f"{service.base_url}/v1/tasks", headers=carrying(token(project)), trust_env=False, timeout=60)
    assert refusal(response, 401) == "Token refused: its issuer is not known here"


FRAMINGS = [{"Content-Length": str(len(LARGE))}, {"Transfer-Encoding": "chunked"}]


@pytest.mark.parametrize("framing", FRAMINGS, ids=["declared", "chunked"])
@pytest.mark.parametrize(
    ("changes", "status"),
    [({"exp": 1_700_000_000}, 401), ({"key": STRANGER}, 401), ({"role": "viewer"}, 403), ({"iss": ISSUER_AWAY}, 503)],
    ids=["expired", "stranger", "viewer", "issuer-away"],
)
def test_a_large_body_without_a_good_token_is_not_read(
    trusting: Service, project: str, framing: dict[str, str], changes: dict[str, Any], status: int
) -> None:
    headers = {**framing, **carrying(token(project, **changes))}
    with trusting.assert_unchanged():
        answered, answer_headers, body = unsent(trusting, headers)
    assert (answered, "code" in body) == (status, True)
    assert ("invalid_token" in answer_headers.get("WWW-Authenticate", "")) is (status == 401)
    assert ("Retry-After" in answer_headers) is (status == 503)


@promise("Decided: money, accounts", "with protected-resource metadata (RFC 9728)")
def test_tools_can_find_out_where_to_sign_in(bearer: httpx2.Client, trusting: Service) -> None:
    metadata = bearer.get(METADATA).raise_for_status().json()
    assert metadata["resource"] == trusting.base_url
    assert metadata["authorization_servers"][:3] == [trusting.base_url, ISSUER, ISSUER_AWAY]
    assert metadata["scopes_supported"] == ["developer", "viewer"]
    assert metadata["bearer_methods_supported"] == ["header"]
