"""Web pages of other origins: which may use the service, and that no others can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from pydantic import ValidationError
from support.client import ENDPOINT, Client, refusal
from support.descriptions import described_paths
from support.http_service import Service, running
from support.pictures import picture

from serve_app.config.settings import ServiceSettings

APP = "https://app.example.com"
LOOPBACK = [
    "http://localhost:3000",
    "http://localhost",
    "https://localhost:8443",
    "http://127.0.0.1:8000",
    "http://127.9.9.9:1",
    "http://[::1]:5173",
]
STRANGERS = [
    "null",
    "*",
    "file://",
    "https://evil.test",
    "https://app.example.com.evil.test",
    "http://app.example.com",
    "https://app.example.com:444",
    "http://localhost.evil.test:3000",
    "http://127.0.0.1.evil.test",
    "http://evil.test#localhost",
    "http://localhost:3000@evil.test",
    "http://localhost:3000, http://evil.test",
    "http://0.0.0.0:3000",
    "http://10.0.0.1",
    "chrome-extension://localhost",
]
ALLOWED = "access-control-allow-origin"
SENT = ["x-key", "content-type", "idempotency-key", "authorization"]


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
    client: httpx2.Client, path: str, origin: str, method: str = "POST", headers: list[str] = SENT
) -> httpx2.Response:
    """What a browser asks before it sends a request of a page's script."""
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": ",".join(headers)}
    return client.options(path, headers={"Origin": origin, **asked})


@pytest.mark.parametrize("origin", [APP, *LOOPBACK])
def test_a_page_that_may_use_the_service(open_service: Service, origin: str) -> None:
    with open_service.client(headers={"Origin": origin}) as client:
        first = asks_first(client, ENDPOINT, origin)
        assert (first.status_code, first.headers[ALLOWED]) == (200, origin)
        assert set(SENT) <= {name.strip().lower() for name in first.headers["access-control-allow-headers"].split(",")}
        submitted = client.submit()
        assert (submitted.status_code, submitted.headers[ALLOWED]) == (200, origin)
        assert "Origin" in submitted.headers["vary"]
        assert client.poll(submitted.json()["id"]).headers[ALLOWED] == origin


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
    found = [(method.upper(), path.replace("{", "").replace("}", "")) for path, of in paths.items() for method in of]
    assert len(found) > 50
    return found


def test_errors_are_for_pages_to_read_too(open_service: Service, page: Client) -> None:
    refused = [
        page.submit(steps=99),
        page.get("/v1/nowhere"),
        page.get("/v1/tasks", headers={"x-key": "gen_wrong"}),
        page.post(ENDPOINT, content=b"x" * 70_000, headers={"x-key": "gen_wrong", "Content-Type": "application/json"}),
    ]
    assert [response.status_code for response in refused] == [422, 404, 403, 403]
    assert {response.headers.get(ALLOWED) for response in refused} == {APP}


def test_what_clients_go_by_is_shown_to_pages(page: Client) -> None:
    response = page.poll(page.accepted())
    shown = {name.strip() for name in response.headers["access-control-expose-headers"].split(",")}
    assert {"Retry-After", "ETag", "Deprecation", "Sunset"} <= shown


@pytest.mark.parametrize("origin", [APP, "null", "https://evil.test"])
def test_a_result_is_for_everyone_who_has_its_link(open_service: Service, origin: str) -> None:
    with open_service.client() as client:
        task_id = client.accepted()
        open_service.worker.deliver(task_id, picture(form="JPEG"))
        link = client.poll(task_id).json()["result"]["sample"]
        fetched = client.get(link, headers={"Origin": origin})
        assert (fetched.status_code, fetched.headers[ALLOWED]) == (200, "*")
        assert asks_first(client, link, origin, "GET", ["range"]).headers[ALLOWED] == "*"


def test_no_page_gets_cookies_or_the_like_along(page: Client) -> None:
    for response in (asks_first(page, ENDPOINT, APP), page.get("/v1/tasks")):
        assert "access-control-allow-credentials" not in response.headers


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
        with open_service.unchanged():
            for method, path in operations(open_service):
                if method == "POST":
                    assert client.post(path, content=b"{}").status_code in (401, 403, 410, 422), path


@pytest.mark.parametrize(
    "origin", ["*", "null", "https://a.example/", "https://a.example/b", "a.example", "https://A.example", ""]
)
def test_what_is_no_origin_can_not_be_set(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        ServiceSettings(cors_origins=[origin])
