"""What the head of a request tells is enough to refuse a large body before any of it is read."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from support.client import ENDPOINT, Client
from support.http_service import Service, StartService
from support.worker import Worker

from serve_app.accounts.roles import Role
from serve_app.config.settings import TaskSettings

LARGE = 26 * 2**20
SLOW_S = 1000
"""Slow enough that no further request becomes due while a test runs."""
PRICING = "/v1/pricing"
TASK = json.dumps({"prompt": "a cat"}).encode()
PATIENCE_S = 60
FRAMINGS = {"declared": {"Content-Length": str(LARGE)}, "chunked": {"Transfer-Encoding": "chunked"}}

Refusal = tuple[int, str, http.client.HTTPMessage]


@contextmanager
def announced(
    service: Service, key: str, path: str, headers: Mapping[str, str]
) -> Iterator[http.client.HTTPConnection]:
    """A request with all but its body."""
    connection = http.client.HTTPConnection(*service.address, timeout=PATIENCE_S)
    try:
        connection.putrequest("POST", path)
        for name, value in {"x-key": key, "Content-Type": "application/json", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        yield connection
    finally:
        connection.close()


def refused(
    service: Service,
    client: Client,
    path: str = ENDPOINT,
    framing: Mapping[str, str] = FRAMINGS["declared"],
    idempotency_key: str = "",
) -> Refusal:
    """The answer to a request whose body never comes."""
    headers = {**framing, "Idempotency-Key": idempotency_key} if idempotency_key else framing
    with service.unchanged(), announced(service, client.secret, path, headers) as connection:
        response = connection.getresponse()
        return response.status, json.loads(response.read())["detail"], response.headers


@pytest.fixture
def poor(service: Service, worker: Worker) -> Iterator[Client]:
    with service.client(organization=worker.new_organization(credits=0)) as client:
        yield client


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS)
def test_without_credits(service: Service, poor: Client, framing: Mapping[str, str]) -> None:
    assert refused(service, poor, framing=framing)[:2] == (402, "Insufficient credits")
    assert poor.submit().json()["detail"] == "Insufficient credits", "as a small one is"


def test_at_a_spending_limit(service: Service, administrator: Client, organization: str) -> None:
    with service.client(organization=organization) as client:
        administrator.patch(f"/v1/admin/projects/{client.project}", json={"limit_day": 0})
        status, detail, headers = refused(service, client)
        assert (status, detail) == (402, client.submit().json()["detail"])
        assert int(headers["retry-after"]) >= 1


@pytest.mark.parametrize("path", [ENDPOINT, PRICING])
def test_too_fast(start_service: StartService, path: str) -> None:
    service = start_service(tasks=TaskSettings(requests_per_s=1 / SLOW_S, burst=1))
    with service.client() as client:
        client.accepted()
        status, detail, headers = refused(service, client, path)
    assert (status, detail[:17]) == (429, "Too many requests")
    assert 1 <= int(headers["retry-after"]) <= SLOW_S
    assert headers["ratelimit"].startswith('"requests";r=0;')


def test_with_too_many_active_tasks(start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(max_active=1))
    with service.client() as client:
        client.accepted()
        status, detail, headers = refused(service, client)
    assert (status, detail) == (429, "Too many active tasks: this project may have 1 at a time")
    assert int(headers["retry-after"]) >= 1


def test_with_a_full_queue(start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(max_queued=1))
    with service.client() as client:
        client.accepted()
        assert refused(service, client)[:2] == (429, "The queue of gen-3-image-klein is full")


def test_the_connection_is_fit_for_the_next_request(service: Service, poor: Client) -> None:
    """Also where the client sends the whole body before it looks for an answer."""
    with announced(service, poor.secret, ENDPOINT, FRAMINGS["declared"]) as connection:
        connection.send(bytes(LARGE))
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["detail"]) == (402, "Insufficient credits")
        connection.request("GET", "/v1/credits", headers={"x-key": poor.secret})
        assert json.loads(connection.getresponse().read()) == {"credits": 0}


def large(**body: Any) -> bytes:
    return json.dumps(body).encode().ljust(2**17)


def test_a_repetition_under_an_idempotency_key_is_read(start_service: StartService) -> None:
    """It is answered as before, whatever the limits are by now."""
    service = start_service(tasks=TaskSettings(max_active=1))
    headers = {"Content-Type": "application/json", "Idempotency-Key": "once"}
    with service.client(headers=headers) as client:
        first, again = (client.post(ENDPOINT, content=large(prompt="a cat")) for _ in range(2))
        assert first.status_code == again.status_code == 200
        assert again.json() == first.json()
        other = client.post(ENDPOINT, content=large(prompt="a dog"))
        assert (other.status_code, other.json()["detail"][0]["type"]) == (422, "idempotency_key_reused")
        assert refused(service, client, idempotency_key="twice")[0] == 429


def test_the_cheapest_mode_is_enough(service: Service, worker: Worker) -> None:
    """Which mode a request names is not told by its head; what it really costs is checked once it is read."""
    organization, video = worker.new_organization(credits=10), {"prompt": "a cat", "mode": "t2v", "duration": 5}
    with service.client(organization=organization) as client:
        for draft, status in ((False, 402), (True, 200)):
            body = large(draft=draft, **video)
            response = client.post("/v1/gen-3-video", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == status, response.text
        assert refused(service, client, "/v1/gen-3-video")[0] == 402


def test_who_may_only_see_prices_is_not_refused_for_what_tasks_cost(service: Service, worker: Worker) -> None:
    organization = worker.new_organization(credits=0)
    with service.client(organization=organization, role=Role.VIEWER) as viewer:
        body = large(path=ENDPOINT, body={"prompt": "a cat"})
        response = viewer.post(PRICING, content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 200, response.text
