"""The address that clients are told to come back to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, StartService, described_paths, running
from support.images import image_file
from support.promises import promise

from serve_app.config.settings import ServiceSettings

FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "media.example.com"}


def origins(service: Service, headers: dict[str, str]) -> set[str]:
    """Where the polling URL and, once there is one, the result's link lead."""
    with service.client(headers=headers) as client:
        submitted = client.submit().json()
        service.worker.deliver(submitted["id"], image_file(form="JPEG"))
        sample = client.poll(submitted["id"]).json()["result"]["sample"]
    return {url.partition("/v1/")[0] for url in (submitted["polling_url"], sample)}


@promise("Decided: submission", "`public_base` is the configured public URL, else the origin of the request")
@pytest.mark.parametrize("public_url", ["https://media.test/", "http://media.test:8443"])
def test_a_configured_address_wins(start_service: StartService, public_url: str) -> None:
    proxy: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": [FORWARDED["X-Forwarded-Host"]]}
    service = start_service(service=ServiceSettings(public_url=public_url, **proxy))
    assert origins(service, FORWARDED) == {public_url.rstrip("/")}


@promise("Decided: submission", "Same origin as the client used")
def test_else_it_is_the_one_that_was_used(service: Service) -> None:
    assert origins(service, {}) == {service.base_url}
    assert origins(service, {"Host": "localhost:1234"}) == {"http://localhost:1234"}


@promise("Decided: submission", "honour `X-Forwarded-Proto/Host` only from configured trusted proxies")
def test_strangers_and_proxies_elsewhere_cannot_forward(service: Service, start_service: StartService) -> None:
    assert origins(service, FORWARDED) == {service.base_url}
    service = start_service(service=ServiceSettings(trusted_proxies=[IPv4Network("10.0.0.0/8"), IPv6Network("::1")]))
    assert origins(service, {**FORWARDED, "X-Forwarded-For": "10.0.0.1"}) == {service.base_url}


@promise("Decided: submission", "honour `X-Forwarded-Proto/Host` only from configured trusted proxies")
@pytest.mark.parametrize("network", ["127.0.0.1", "127.0.0.0/8"])
def test_a_trusted_proxy_tells(start_service: StartService, network: str) -> None:
    hosts = ["media.example.com", "media.test"]
    service = start_service(service=ServiceSettings(trusted_proxies=[ip_network(network)], allowed_hosts=hosts))
    assert origins(service, FORWARDED) == {"https://media.example.com"}
    assert origins(service, {"X-Forwarded-Host": "media.example.com:8443"}) == {"http://media.example.com:8443"}
    assert origins(service, {"X-Forwarded-Proto": "https", "Host": "media.test"}) == {"https://media.test"}
    # The first is what the client saw; the others are proxies on the way.
    several = {"X-Forwarded-Proto": "https, http", "X-Forwarded-Host": "media.example.com, inner"}
    assert origins(service, several) == {"https://media.example.com"}
    assert origins(service, {}) == {service.base_url}


TASKS = "/v1/tasks"


def send(service: Service, path: str = TASKS, **headers: str) -> httpx2.Response:
    with service.client(headers={name.replace("_", "-"): value for name, value in headers.items()}) as client:
        return client.get(path)


FORGED = [
    "evil.test",
    "localhost.evil.test",
    "127.0.0.1.evil.test",
    "10.0.0.1",
    "localhost:80:80",
    'localhost:1"',
    "[::1",
    "localhost:99999999",
    "a@localhost",
    "localhost, evil.test",
]


@pytest.mark.parametrize(
    ("path", "hosts", "status"),
    [
        (TASKS, ["127.0.0.1", "127.1.2.3:8000", "localhost", "LocalHost:99", "[::1]", "[::1]:8000"], 200),
        (TASKS, FORGED, 421),
        ("/healthz", FORGED[:1], 200),
        ("/readyz", ["10.1.2.3:8000"], 200),
    ],
)
def test_loopback_is_always_known_and_others_by_probes(
    service: Service, path: str, hosts: list[str], status: int
) -> None:
    for host in hosts:
        assert send(service, path, Host=host).status_code == status, host
    with service.client(headers={"Host": "evil.test"}) as client, service.assert_unchanged():
        assert "service.allowed_hosts" in refusal(client.submit(), 421)


def test_nor_does_a_trusted_proxy_make_them_known(start_service: StartService) -> None:
    proxy = ServiceSettings(trusted_proxies=[IPv4Network("127.0.0.1")], public_url="https://media.test")
    service = start_service(service=proxy)
    for host in FORGED:
        # Of several the first is what the client asked for.
        allowed = host.startswith("localhost,")
        assert send(service, X_Forwarded_Host=host).status_code == (200 if allowed else 421), host
    assert send(service, X_Forwarded_Host="media.test").status_code == 200
    assert send(service, Host="media.test").status_code == 200


def test_without_a_host_there_is_no_origin(service: Service) -> None:
    with socket.create_connection(service.address) as wire:
        wire.sendall(b"GET /v1/get_result?id=x HTTP/1.0\r\n\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    ("settings", "allowed", "unknown"),
    [
        (
            {"public_url": "https://Media.test:8443"},
            ["media.test", "media.test:8443", "MEDIA.TEST"],
            ["test", "other.test"],
        ),
        (
            {"allowed_hosts": ["a.test", "[fd00::1]"]},
            ["a.test", "A.test:1", "[fd00::1]:8000"],
            ["b.a.test", "[fd00::2]"],
        ),
        (
            {"region": "eu", "regions": {"eu": "https://eu.test", "us": "https://us.test"}},
            ["eu.test"],
            ["us.test"],
        ),
    ],
    ids=["public", "allowed", "region"],
)
def test_configured_ones_are_known(
    start_service: StartService, settings: dict[str, Any], allowed: list[str], unknown: list[str]
) -> None:
    service = start_service(service=ServiceSettings(**settings))
    assert [send(service, Host=host).status_code for host in (*allowed, "localhost")] == [200] * (len(allowed) + 1)
    assert [send(service, Host=host).status_code for host in unknown] == [421] * len(unknown)


APP = "https://app.example.com"
LOOPBACK = [
    "http://localhost:3000",
    "http://localhost",
    "http://127.0.0.1:8000",
    "http://[::1]:5173",
]
STRANGERS = [
    "null",
    "*",
    "https://evil.test",
    "https://app.example.com.evil.test",
    "http://app.example.com",
    "http://localhost.evil.test:3000",
    "http://evil.test#localhost",
    "http://localhost:3000@evil.test",
    "http://localhost:3000, http://evil.test",
    "http://0.0.0.0:3000",
    "chrome-extension://localhost",
]
ALLOWED = "access-control-allow-origin"
REQUEST_HEADERS = ["x-key", "content-type", "idempotency-key", "authorization"]


@pytest.fixture(scope="module")
def open_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = ServiceSettings(cors_origins=["loopback", APP])
    with running(tmp_path_factory.mktemp("open"), redis_url, repository, service=settings) as service:
        yield service


@pytest.fixture
def page(open_service: Service) -> Iterator[Client]:
    """What a browser sends for a page of `APP`."""
    with open_service.client(headers={"Origin": APP}) as client:
        yield client


def asks_first(
    client: httpx2.Client, path: str, origin: str, method: str = "POST", headers: list[str] = REQUEST_HEADERS
) -> httpx2.Response:
    """What a browser asks before it sends a request of a page's script."""
    preflight_headers = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": ",".join(headers)}
    return client.options(path, headers={"Origin": origin, **preflight_headers})


@pytest.mark.parametrize("origin", [APP, *LOOPBACK])
def test_a_page_that_may_use_the_service(open_service: Service, origin: str) -> None:
    with open_service.client(headers={"Origin": origin}) as client:
        first = asks_first(client, ENDPOINT, origin)
        assert (first.status_code, first.headers[ALLOWED]) == (200, origin)
        assert set(REQUEST_HEADERS) <= {
            name.strip().lower() for name in first.headers["access-control-allow-headers"].split(",")
        }
        submitted = client.submit()
        assert (submitted.status_code, submitted.headers[ALLOWED]) == (200, origin)
        assert "Origin" in submitted.headers["vary"]
        polled = client.poll(submitted.json()["id"])
        assert polled.headers[ALLOWED] == origin
        exposed = {name.strip() for name in polled.headers["access-control-expose-headers"].split(",")}
        assert {"Retry-After", "ETag", "Deprecation", "Sunset"} <= exposed
        for response in (first, submitted, polled):
            assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("origin", STRANGERS)
def test_a_page_that_may_not(open_service: Service, origin: str) -> None:
    with open_service.client(headers={"Origin": origin}) as client:
        first = asks_first(client, ENDPOINT, origin)
        assert refusal(first, 400).startswith("Disallowed CORS origin")
        for response in (first, client.submit(), client.get("/v1/get_result?id=x"), client.get("/healthz")):
            assert ALLOWED not in response.headers


def operations(service: Service) -> list[tuple[str, str]]:
    """Method and path of all that the service describes."""
    paths = described_paths(service.app)
    pairs = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in paths.items()
        for method in methods
    ]
    assert len(pairs) > 50
    return pairs


def test_errors_are_for_pages_to_read_too(open_service: Service, page: Client) -> None:
    refused = [
        page.submit(steps=99),
        page.get("/v1/nowhere"),
        page.get("/v1/tasks", headers={"x-key": "gen_wrong"}),
        page.post(ENDPOINT, content=b"x" * 70_000, headers={"x-key": "gen_wrong", "Content-Type": "application/json"}),
    ]
    assert [response.status_code for response in refused] == [422, 404, 403, 403]
    assert {response.headers.get(ALLOWED) for response in refused} == {APP}


@pytest.mark.parametrize("origin", [APP, "null", "https://evil.test"])
def test_a_result_is_for_everyone_who_has_its_link(open_service: Service, origin: str) -> None:
    with open_service.client() as client:
        task_id = client.create_task()
        open_service.worker.deliver(task_id, image_file(form="JPEG"))
        link = client.poll(task_id).json()["result"]["sample"]
        fetched = client.get(link, headers={"Origin": origin})
        assert (fetched.status_code, fetched.headers[ALLOWED]) == (200, "*")
        assert asks_first(client, link, origin, "GET", ["range"]).headers[ALLOWED] == "*"


@pytest.mark.parametrize("origin", ["http://rebound.test:8000", APP, LOOPBACK[0]])
def test_a_name_that_was_made_to_point_here_is_refused_first(open_service: Service, origin: str) -> None:
    """Browsers hold a page for the service's own whose name resolves to it; then `Host` gives it away."""
    with open_service.client(headers={"Host": "rebound.test:8000", "Origin": origin}) as client:
        for response in (asks_first(client, ENDPOINT, origin), client.submit(), client.get("/v1/get_result?id=x")):
            refusal(response, 421)
            assert ALLOWED not in response.headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_browsers_send_unasked_changes_nothing(open_service: Service, kind: str) -> None:
    """A form of any page may be posted without asking first, though never with a key."""
    with open_service.client(headers={"Origin": "https://evil.test", "Content-Type": kind}) as client:
        del client.headers["x-key"]
        with open_service.assert_unchanged():
            for method, path in operations(open_service):
                if method == "POST":
                    assert client.post(path, content=b"{}").status_code in (401, 403, 410, 422), path


@pytest.mark.parametrize(
    "origin", ["*", "null", "https://a.example/", "https://a.example/b", "a.example", "https://A.example", ""]
)
def test_what_is_no_origin_can_not_be_set(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        ServiceSettings(cors_origins=[origin])
