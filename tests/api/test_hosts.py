"""Hosts and origins: the address in links, trusted hosts and proxies, and cross-origin requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from support.http_client import ENDPOINT, refusal
from support.http_service import Service, StartService, described_paths, running
from support.images import image_file
from support.promises import promise

from serve_app.api.hosts import CrossOrigin, TrustedHosts, public_base
from serve_app.config.settings import ServiceSettings

FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "media.example.com"}


def origins(service: Service, headers: dict[str, str]) -> set[str]:
    """Returns the origins of the polling URL and of the result's link."""
    with service.client(headers=headers) as client:
        submitted = client.submit().json()
        service.worker.deliver(submitted["id"], image_file(form="JPEG"))
        sample = client.poll(submitted["id"]).json()["result"]["sample"]
    return {url.partition("/v1/")[0] for url in (submitted["polling_url"], sample)}


@promise("Decided: submission", "`public_base` is the configured public URL, else the origin of the request")
def test_links_have_the_configured_public_url(start_service: StartService) -> None:
    settings = ServiceSettings(public_url="https://media.test:8443/", allowed_hosts=["media.example.com"])
    assert origins(start_service(service=settings), FORWARDED) == {"https://media.test:8443"}


def test_links_have_the_requested_host_by_default(service: Service) -> None:
    assert origins(service, FORWARDED) == {service.base_url}
    assert origins(service, {"Host": "localhost:1234"}) == {"http://localhost:1234"}


def get_base(settings: ServiceSettings, headers: dict[str, str], peer: str = "127.0.0.1") -> str:
    """Returns the public base that the app sees, or "421" if the host is refused."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(public_base(HTTPConnection(scope), settings))(scope, receive, send)

    async def run() -> httpx2.Response:
        transport = httpx2.ASGITransport(TrustedHosts(app, settings, frozenset()), client=(peer, 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/tasks", headers=headers)

    response = asyncio.run(run())
    return response.text if response.status_code == 200 else str(response.status_code)


@promise("Decided: submission", "honour `X-Forwarded-Proto/Host` only from configured trusted proxies")
@pytest.mark.parametrize(
    ("peer", "headers", "base"),
    [
        ("10.1.2.3", FORWARDED, "https://media.example.com"),
        ("::ffff:10.1.2.3", FORWARDED, "https://media.example.com"),
        ("11.1.2.3", FORWARDED, "http://localhost"),
        ("11.1.2.3", {**FORWARDED, "X-Forwarded-For": "10.0.0.1"}, "http://localhost"),
        ("unix:", FORWARDED, "http://localhost"),
        ("10.1.2.3", {"X-Forwarded-Host": "media.example.com:8443"}, "http://media.example.com:8443"),
        ("10.1.2.3", {"X-Forwarded-Proto": "https", "Host": "media.test"}, "https://media.test"),
        ("10.1.2.3", {"X-Forwarded-Proto": "gopher"}, "http://localhost"),
        # The first value is what the client asked for; the others are of proxies on the way.
        ("10.1.2.3", {"X-Forwarded-Proto": "https, http", "X-Forwarded-Host": "media.test, x"}, "https://media.test"),
        ("10.1.2.3", {}, "http://localhost"),
    ],
)
def test_only_trusted_proxies_may_forward_the_address(peer: str, headers: dict[str, str], base: str) -> None:
    proxies = [IPv4Network("10.0.0.0/8"), IPv6Network("::1")]
    hosts = ["media.example.com", "media.test"]
    assert get_base(ServiceSettings(trusted_proxies=proxies, allowed_hosts=hosts), headers, peer) == base


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
]
REGIONS = {"eu": "https://eu.test", "us": "https://us.test"}


@pytest.mark.parametrize(
    ("settings", "allowed", "unknown"),
    [
        (
            {},
            ["127.0.0.1", "127.1.2.3:8000", "localhost", "LocalHost:99", "[::1]", "[::1]:8000"],
            [*FORGED, "localhost, evil.test"],
        ),
        (
            {"public_url": "https://Media.test:8443"},
            ["media.test", "media.test:8443", "MEDIA.TEST", "localhost"],
            ["test", "other.test"],
        ),
        (
            {"allowed_hosts": ["a.test", "[fd00::1]"]},
            ["a.test", "A.test:1", "[fd00::1]:8000"],
            ["b.a.test", "[fd00::2]"],
        ),
        ({"region": "eu", "regions": REGIONS}, ["eu.test"], ["us.test"]),
    ],
    ids=["default", "public", "allowed", "region"],
)
def test_only_loopback_and_configured_hosts_are_served(
    settings: dict[str, Any], allowed: list[str], unknown: list[str]
) -> None:
    service = ServiceSettings(**settings)
    assert [host for host in allowed if get_base(service, {"Host": host}) == "421"] == []
    assert [host for host in unknown if get_base(service, {"Host": host}) != "421"] == []


def test_trusted_proxy_cannot_forward_an_unknown_host() -> None:
    settings = ServiceSettings(trusted_proxies=[IPv4Network("127.0.0.1")], public_url="https://media.test")
    assert {get_base(settings, {"X-Forwarded-Host": host}) for host in FORGED} == {"421"}
    for host in ("localhost, evil.test", "media.test"):
        assert get_base(settings, {"X-Forwarded-Host": host}) == "https://media.test"


def test_unknown_host_is_refused_except_by_probes(service: Service) -> None:
    with service.client(headers={"Host": "evil.test"}) as client:
        assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        with service.assert_unchanged():
            assert "service.allowed_hosts" in refusal(client.submit(), 421)


def test_request_without_a_host_is_refused(service: Service) -> None:
    with socket.create_connection(service.address) as wire:
        wire.sendall(b"GET /v1/get_result?id=x HTTP/1.0\r\n\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 421 ")


APP = "https://app.example.com"
LOOPBACK = ["http://localhost:3000", "http://localhost", "http://127.0.0.1:8000", "http://[::1]:5173"]
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


def ask_first(client: httpx2.Client, path: str, origin: str, method: str = "POST") -> httpx2.Response:
    """Sends the preflight request of a browser."""
    wanted = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": ",".join(REQUEST_HEADERS)}
    return client.options(path, headers={"Origin": origin, **wanted})


def test_only_configured_and_loopback_origins_are_allowed() -> None:
    async def app(*_: object) -> None: ...

    middleware = CrossOrigin(app, ["loopback", APP], "/v1/results")
    assert [origin for origin in (APP, *LOOPBACK) if not middleware.is_allowed_origin(origin)] == []
    assert [origin for origin in STRANGERS if middleware.is_allowed_origin(origin)] == []
    assert not CrossOrigin(app, [APP], "/v1/results").is_allowed_origin(LOOPBACK[0])


@pytest.mark.parametrize("origin", [APP, LOOPBACK[0]])
def test_page_of_an_allowed_origin_may_use_the_service(open_service: Service, origin: str) -> None:
    with open_service.client(headers={"Origin": origin}) as client:
        first = ask_first(client, ENDPOINT, origin)
        assert (first.status_code, first.headers[ALLOWED]) == (200, origin)
        allowed = {name.strip().lower() for name in first.headers["access-control-allow-headers"].split(",")}
        assert allowed >= set(REQUEST_HEADERS)
        submitted = client.submit()
        assert (submitted.status_code, submitted.headers[ALLOWED]) == (200, origin)
        assert "Origin" in submitted.headers["vary"]
        polled = client.poll(submitted.json()["id"])
        assert polled.headers[ALLOWED] == origin
        exposed = {name.strip() for name in polled.headers["access-control-expose-headers"].split(",")}
        assert {"Retry-After", "ETag", "Deprecation", "Sunset"} <= exposed
        for response in (first, submitted, polled):
            assert "access-control-allow-credentials" not in response.headers


def test_page_of_another_origin_reads_no_response(open_service: Service) -> None:
    origin = "https://evil.test"
    with open_service.client(headers={"Origin": origin}) as client:
        first = ask_first(client, ENDPOINT, origin)
        assert refusal(first, 400).startswith("Disallowed CORS origin")
        for response in (first, client.submit(), client.get("/v1/get_result?id=x"), client.get("/healthz")):
            assert ALLOWED not in response.headers


def test_page_of_an_allowed_origin_reads_errors(open_service: Service) -> None:
    wrong_key = {"x-key": "gen_wrong", "Content-Type": "application/json"}
    with open_service.client(headers={"Origin": APP}) as page:
        refused = [
            page.submit(steps=99),
            page.get("/v1/nowhere"),
            page.get("/v1/tasks", headers=wrong_key),
            page.post(ENDPOINT, content=b"x" * 70_000, headers=wrong_key),
        ]
    assert [response.status_code for response in refused] == [422, 404, 403, 403]
    assert {response.headers.get(ALLOWED) for response in refused} == {APP}


@pytest.mark.parametrize("origin", [APP, "null"])
def test_every_origin_may_read_a_result_by_its_link(open_service: Service, origin: str) -> None:
    with open_service.client() as client:
        task_id = client.create_task()
        open_service.worker.deliver(task_id, image_file(form="JPEG"))
        link = client.poll(task_id).json()["result"]["sample"]
        fetched = client.get(link, headers={"Origin": origin})
        assert (fetched.status_code, fetched.headers[ALLOWED]) == (200, "*")
        assert ask_first(client, link, origin, "GET").headers[ALLOWED] == "*"


@pytest.mark.parametrize("origin", ["http://rebound.test:8000", APP, LOOPBACK[0]])
def test_rebound_host_is_refused_before_its_origin_counts(open_service: Service, origin: str) -> None:
    """For a browser, a page whose name resolves to the service has its origin. Only `Host` gives it away."""
    with open_service.client(headers={"Host": "rebound.test:8000", "Origin": origin}) as client:
        for response in (ask_first(client, ENDPOINT, origin), client.submit(), client.get("/v1/get_result?id=x")):
            refusal(response, 421)
            assert ALLOWED not in response.headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_form_of_another_page_changes_nothing(open_service: Service, kind: str) -> None:
    """Browsers post forms of any page without a preflight request, but never with a key."""
    with open_service.client(headers={"Origin": "https://evil.test", "Content-Type": kind}) as client:
        del client.headers["x-key"]
        described = described_paths(open_service.app)
        paths = [path.replace("{", "").replace("}", "") for path in described if "post" in described[path]]
        assert len(paths) > 20
        with open_service.assert_unchanged():
            for path in paths:
                assert client.post(path, content=b"{}").status_code in (401, 403, 410, 422), path


@pytest.mark.parametrize(
    "origin", ["*", "null", "https://a.example/", "https://a.example/b", "a.example", "https://A.example", ""]
)
def test_setting_refuses_invalid_origins(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        ServiceSettings(cors_origins=[origin])
