"""Tokens of an issuer in `Authorization`, in place of a key. Which tokens are valid is tested in `accounts/bearer`."""

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
from serve_app.accounts.settings import AccountSettings, IssuerSettings
from serve_app.api.bodies import KEYLESS_BYTES

ISSUER = "https://login.test"
ISSUER_AWAY = "https://away.test"
AUDIENCE = "https://media.test"
KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())
METADATA = "/.well-known/oauth-protected-resource"
LARGE = b'{"prompt": "a cat"}'.ljust(KEYLESS_BYTES + 1)


@pytest.fixture(scope="module")
def trusting(
    web: Website, redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that trusts an issuer that publishes its keys, and one that is unreachable."""
    form: Any = jwt.get_algorithm_by_name("ES256")
    key = {**form.to_jwk(KEY.public_key(), as_dict=True), "kid": "key", "alg": "ES256"}
    web.set_page("/jwks", json.dumps({"keys": [key]}).encode())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = closed.getsockname()[1]
    addresses = {ISSUER: f"http://127.0.0.1:{web.port}/jwks", ISSUER_AWAY: f"http://127.0.0.1:{away}/jwks"}
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
    """A client with a key of the project."""
    with trusting.client(project) as client:
        yield client


def token(project: str, key: ec.EllipticCurvePrivateKey = KEY, **changes: Any) -> str:
    """Returns a token of a developer; a change to None removes a claim."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 300, "project": project}
    claims = {**good, "role": "developer", **changes}
    present = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(present, key, "ES256", headers={"kid": "key"})


def bearer_header(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


def announce_submission(
    service: Service, headers: Mapping[str, str]
) -> tuple[int, http.client.HTTPMessage, dict[str, Any]]:
    """Announces a submission's body and sends none. Returns the response."""
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
def test_developer_submits_and_cancels_in_the_project_of_the_token(
    bearer: httpx2.Client, key_client: Client, project: str
) -> None:
    with_token = bearer_header(token(project))
    submitted = bearer.post(ENDPOINT, json={"prompt": "a cat"}, headers=with_token)
    assert submitted.status_code == 200, submitted.text
    task_id = submitted.json()["id"]
    for listed in (
        bearer.get("/v1/tasks", headers=bearer_header(token(project), "BEARER")),
        key_client.get("/v1/tasks"),
    ):
        assert [task["id"] for task in listed.json()["tasks"]] == [task_id]
    assert bearer.delete(f"/v1/tasks/{task_id}", headers=with_token).status_code == 200
    assert key_client.poll(task_id).json()["status"] == "Error"


@promise("Decided: money, accounts", "claims map to project and role")
def test_token_has_the_permissions_of_its_role(trusting: Service, bearer: httpx2.Client, project: str) -> None:
    headers = bearer_header(token(project, role="viewer"))
    assert bearer.get("/v1/tasks", headers=headers).status_code == 200
    with trusting.assert_unchanged():
        refusal(bearer.post(ENDPOINT, json={"prompt": "a cat"}, headers=headers), 403)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": 1_700_000_000}, "it has expired"),
        ({"key": STRANGER}, "its signature is not valid"),
        ({"role": "operator"}, "its claim role must be one of administrator, developer, billing_manager, viewer"),
    ],
    ids=["expired", "signature", "operator"],
)
def test_error_has_the_reason_but_not_the_token(
    trusting: Service, bearer: httpx2.Client, project: str, changes: dict[str, Any], reason: str
) -> None:
    bad = token(**{"project": project, **changes})
    for method, path in (("GET", "/v1/tasks"), ("POST", ENDPOINT)):
        with trusting.assert_unchanged():
            response = bearer.request(method, path, json={"prompt": "a cat"}, headers=bearer_header(bad))
        assert refusal(response, 401) == f"Token refused: {reason}"
        assert f'error_description="{reason}"' in response.headers["www-authenticate"]
        for part in bad.split("."):
            assert part not in response.text
            assert part not in str(response.headers)


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
    assert key_client.get("/v1/tasks", headers=bearer_header("nonsense")).status_code == 200
    response = bearer.get("/v1/tasks", headers={"x-key": "gen_wrong", **bearer_header(token(project))})
    assert refusal(response, 403) == "Not authenticated - Invalid Authentication"


def test_token_is_refused_without_issuers_in_the_settings(service: Service, project: str) -> None:
    response = httpx2.get(
        f"{service.base_url}/v1/tasks", headers=bearer_header(token(project)), trust_env=False, timeout=60
    )
    assert refusal(response, 401) == "Token refused: its issuer is not known here"


DECLARED = {"Content-Length": str(len(LARGE))}
CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.parametrize(
    ("framing", "changes", "status"),
    [
        (DECLARED, {"exp": 1_700_000_000}, 401),
        (CHUNKED, {"exp": 1_700_000_000}, 401),
        (DECLARED, {"key": STRANGER}, 401),
        (DECLARED, {"role": "viewer"}, 403),
        (DECLARED, {"iss": ISSUER_AWAY}, 503),
    ],
    ids=["expired", "expired chunked", "signature", "viewer", "issuer unreachable"],
)
def test_large_body_without_a_valid_token_is_not_read(
    trusting: Service, project: str, framing: dict[str, str], changes: dict[str, Any], status: int
) -> None:
    with trusting.assert_unchanged():
        answered, headers, body = announce_submission(trusting, framing | bearer_header(token(project, **changes)))
    assert (answered, "code" in body) == (status, True)
    assert ("invalid_token" in headers.get("WWW-Authenticate", "")) is (status == 401)
    assert ("Retry-After" in headers) is (status == 503)


@promise("Decided: money, accounts", "with protected-resource metadata (RFC 9728)")
def test_metadata_names_the_authorization_servers(bearer: httpx2.Client, trusting: Service) -> None:
    metadata = bearer.get(METADATA).raise_for_status().json()
    assert metadata["resource"] == trusting.base_url
    assert metadata["authorization_servers"] == [trusting.base_url, ISSUER, ISSUER_AWAY]
    assert metadata["scopes_supported"] == ["developer", "viewer"]
    assert metadata["bearer_methods_supported"] == ["header"]
