"""Signing in by an outside OpenID provider: a published one, run as it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.http_service import Service, StartService
from support.published_clients import python_environment

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.roles import Role
from serve_app.accounts.settings import OpenIdSettings
from serve_app.config.settings import AccountSettings
from serve_app.launcher.embedded_redis import free_port

HERE = {"sec-fetch-site": "same-origin"}
ADA = "ada@example.com"


@pytest.fixture(scope="module")
def provider(repository: Path) -> Iterator[str]:
    """Its issuer. Whoever asks is a client; people are who they say they are."""
    python, port = python_environment(repository, "openid"), free_port()
    process = subprocess.Popen(
        [str(python), "-m", "oidc_provider_mock", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert any("running on" in line.lower() or "started" in line.lower() for line in process.stderr)
        issuer = f"http://127.0.0.1:{port}"
        # It says that it started before its port is open.
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=6), base_url=issuer, timeout=60) as administrator:
            for name, verified in ((ADA, True), ("eve@example.com", False), ("stranger@example.com", True)):
                claims = {"email": name, "email_verified": verified}
                administrator.put(f"/users/{name}", json=claims).raise_for_status()
        yield issuer
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def service(start_service: StartService, provider: str) -> Service:
    """Where Ada and Eve are members."""
    openid = OpenIdSettings.model_validate({"issuer": provider, "client_id": "gen-serve", "client_secret": "x"})
    service = start_service(accounts=AccountSettings(openid=openid))
    for name in (ADA, "eve@example.com"):
        service.worker.run(service.worker.organizations.set_member(DEFAULT_ORGANIZATION, name, Role.DEVELOPER, "test"))
    service.worker.new_key("default")
    return service


@contextmanager
def window(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.base_url, headers=HERE, timeout=60, trust_env=False) as browser:
        yield browser


def came_back(browser: httpx2.Client, person: str, to: str = "/gallery") -> str:
    """The address, on this service, that the provider sends the browser back to."""
    there = browser.get("/v1/session/openid", params={"to": to}).headers["location"]
    return httpx2.post(there, data={"sub": person}, trust_env=False, timeout=60).headers["location"]


def test_a_member_signs_in_and_goes_on_where_they_wanted(service: Service) -> None:
    with window(service) as browser:
        assert browser.get("/v1/session").json()["openid"] == "127.0.0.1"
        answer = browser.get(came_back(browser, ADA))
        assert (answer.status_code, answer.headers["location"]) == (302, "/gallery")
        session = browser.get("/v1/session").json()
        assert (session["name"], session["role"]) == (ADA, "developer")


@pytest.mark.parametrize(("person", "problem"), [("eve@example.com", "refused"), ("stranger@example.com", "no-member")])
def test_whom_nobody_knows_or_vouches_for_stays_out(service: Service, person: str, problem: str) -> None:
    with window(service) as browser:
        answer = browser.get(came_back(browser, person))
        assert answer.headers["location"] == f"/sign-in?problem={problem}"
        assert browser.get("/v1/session").json()["signed_in"] is False


def test_an_answer_counts_once_and_in_the_browser_that_asked(service: Service) -> None:
    with window(service) as browser, window(service) as another:
        back = came_back(browser, ADA)
        assert another.get(back).headers["location"] == "/sign-in?problem=refused"
        assert browser.get(back).headers["location"] == "/gallery"
        assert browser.get(back).headers["location"] == "/sign-in?problem=refused"


def test_nobody_is_led_on_elsewhere(service: Service) -> None:
    with window(service) as browser:
        for to in ("https://elsewhere.test/", "//elsewhere.test", "/\\elsewhere.test"):
            assert browser.get(came_back(browser, ADA, to)).headers["location"] == "/"


def test_what_is_asked_for_is_bound_to_this_browser(service: Service) -> None:
    with window(service) as browser:
        query = parse_qs(urlsplit(browser.get("/v1/session/openid").headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == [f"{service.base_url}/v1/session/openid/back"]
    assert query["nonce"]
    assert query["scope"] == ["openid email"]


def test_a_provider_that_is_away_is_said(start_service: StartService) -> None:
    openid = OpenIdSettings.model_validate({"issuer": f"http://127.0.0.1:{free_port()}", "client_id": "gen-serve"})
    with window(start_service(accounts=AccountSettings(openid=openid))) as browser:
        assert browser.get("/v1/session/openid").headers["location"] == "/sign-in?problem=out-of-reach"


def test_without_a_provider_there_is_no_such_way(start_service: StartService) -> None:
    with window(start_service()) as browser:
        assert browser.get("/v1/session/openid").status_code == 404
        assert browser.get("/v1/session").json()["openid"] is None
