"""Who may do what: a key in the header `x-key`, or in `Authorization: Bearer`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from redis import Redis
from support.client import ENDPOINT, Client, refusal
from support.http_service import Service
from support.promises import promise

from serve_app.accounts.keys import digest_of

MISSING = ("Not authenticated", "missing_key")
INVALID = ("Not authenticated - Invalid Authentication", "invalid_key")


def refused(response: httpx2.Response) -> tuple[str, str]:
    return refusal(response, 403), response.json()["code"]


GUARDED = [("POST", ENDPOINT), ("GET", "/v1/tasks"), ("DELETE", "/v1/tasks/some-id")]
OPEN = [("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/docs"), ("GET", "/openapi.json")]


@promise(
    "Decided: errors",
    '403 `{"detail": "Not authenticated"}` when `x-key` is missing; 403 `"Not authenticated - Invalid '
    'Authentication"` when it is wrong, revoked or expired',
)
@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    ("key", "answer"),
    [
        (None, MISSING),
        ("", MISSING),
        ("gen_wrong", INVALID),
        ("x" * 4000, INVALID),
        ("cl\xe9".encode("latin-1"), INVALID),
        ("null", INVALID),
    ],
    ids=["missing", "empty", "wrong", "long", "not-ascii", "null"],
)
def test_without_a_valid_key(
    client: Client, service: Service, method: str, path: str, key: str | bytes | None, answer: tuple[str, str]
) -> None:
    del client.headers["x-key"]
    headers = {} if key is None else {"x-key": key}
    with service.unchanged():
        response = client.request(method, path, json={"prompt": "x"}, headers=headers)  # type: ignore[arg-type]
    assert refused(response) == answer
    assert "x-key" in response.json()["hint"] or "gen-serve keys create" in response.json()["hint"]


@promise("Decided: errors", '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_a_revoked_key(client: Client, service: Service, method: str, path: str) -> None:
    keys = service.worker.keys
    key, secret = service.worker.run(keys.create("short-lived"))
    assert service.worker.run(keys.revoke(key.id))
    response = client.request(method, path, json={"prompt": "x"}, headers={"x-key": secret})
    assert refused(response) == INVALID


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_open_to_everyone(client: Client, method: str, path: str) -> None:
    del client.headers["x-key"]
    assert client.request(method, path).status_code == 200


@promise("Authentication", "Every endpoint is secured by an API key sent in the request header `x-key`.")
def test_the_key_is_judged_before_the_body(client: Client) -> None:
    response = client.post(ENDPOINT, json={"steps": "many"}, headers={"x-key": "gen_wrong"})
    assert refused(response) == INVALID


@pytest.fixture
def old_key(service: Service) -> Iterator[str]:
    """As it was stored before there were projects and roles."""
    secret = f"gen_{uuid.uuid4().hex}"
    digest, prefix = digest_of(secret), service.settings.redis.prefix
    with Redis.from_url(service.settings.redis_url) as redis:
        record: dict[Any, Any] = {"id": uuid.uuid4().hex[:12], "name": "old", "hint": secret[:10], "created": 1.7e9}
        redis.hset(f"{prefix}key:{digest}", mapping=record)
        redis.hset(f"{prefix}keys", record["id"], digest)
    yield secret
    assert service.worker.run(service.worker.keys.revoke(record["id"]))


def bearing(secret: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {secret}"}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_key_may_come_as_a_bearer(client: Client, scheme: str) -> None:
    """As SDKs send one that have no header of their own for it."""
    secret = client.headers.pop("x-key")
    accepted = client.post(ENDPOINT, json={"prompt": "a cat"}, headers=bearing(secret, scheme))
    assert accepted.status_code == 200, accepted.text
    assert [task["id"] for task in client.get("/v1/tasks", headers=bearing(secret)).json()["tasks"]] == [
        accepted.json()["id"]
    ]


@promise("Decided: errors", '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize("key", ["gen_wrong", "gen_", "gen_" + "x" * 4000, "gen_a.b.c"], ids=lambda key: key[:9])
def test_a_wrong_key_is_one_in_either_header(
    client: Client, service: Service, method: str, path: str, key: str
) -> None:
    del client.headers["x-key"]
    with service.unchanged():
        response = client.request(method, path, json={"prompt": "x"}, headers=bearing(key))
    assert refused(response) == INVALID


def test_of_two_keys_the_one_in_x_key_holds(client: Client, other_client: Client) -> None:
    task_id = client.accepted()
    both = client.get("/v1/tasks", headers=bearing(other_client.secret))
    assert [task["id"] for task in both.json()["tasks"]] == [task_id]
    wrong = {"x-key": "gen_wrong", **bearing(client.secret)}
    assert refused(client.get("/v1/tasks", headers=wrong)) == INVALID
    assert client.get("/v1/tasks", headers=bearing("gen_wrong")).status_code == 200
