"""Signing in by an OpenID provider: a published one, as a process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.http_service import Service, StartService, running
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
    """The URL of a provider that accepts every client and every person."""
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


@pytest.fixture(scope="module")
def openid_service(
    provider: str, redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service of which Ada and Eve are members."""
    openid = OpenIdSettings.model_validate({"issuer": provider, "client_id": "gen-serve", "client_secret": "x"})
    folder, accounts = tmp_path_factory.mktemp("openid"), AccountSettings(openid=openid)
    with running(folder, redis_url, repository, accounts=accounts) as service:
        members, role = service.worker.organizations, Role.DEVELOPER
        for name in (ADA, "eve@example.com"):
            service.worker.run(members.set_member(DEFAULT_ORGANIZATION, name, role, "test"))
        service.worker.new_key("default")
        yield service


@contextmanager
def new_browser(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.base_url, headers=HERE, timeout=60, trust_env=False) as browser:
        yield browser


def get_callback_url(browser: httpx2.Client, person: str, to: str = "/gallery") -> str:
    """Signs in at the provider. Returns the callback URL on this service."""
    there = browser.get("/v1/session/openid", params={"to": to}).headers["location"]
    return httpx2.post(there, data={"sub": person}, trust_env=False, timeout=60).headers["location"]


def test_member_signs_in_and_returns_to_the_requested_page(openid_service: Service) -> None:
    with new_browser(openid_service) as browser:
        assert browser.get("/v1/session").json()["openid"] == "127.0.0.1"
        answer = browser.get(get_callback_url(browser, ADA))
        assert (answer.status_code, answer.headers["location"]) == (302, "/gallery")
        session = browser.get("/v1/session").json()
        assert (session["name"], session["role"]) == (ADA, "developer")


@pytest.mark.parametrize(("person", "problem"), [("eve@example.com", "refused"), ("stranger@example.com", "no-member")])
def test_unverified_and_unknown_people_are_refused(openid_service: Service, person: str, problem: str) -> None:
    with new_browser(openid_service) as browser:
        answer = browser.get(get_callback_url(browser, person))
        assert answer.headers["location"] == f"/sign-in?problem={problem}"
        assert browser.get("/v1/session").json()["signed_in"] is False


def test_callback_counts_once_and_in_its_browser(openid_service: Service) -> None:
    with new_browser(openid_service) as browser, new_browser(openid_service) as another:
        back = get_callback_url(browser, ADA)
        assert another.get(back).headers["location"] == "/sign-in?problem=refused"
        assert browser.get(back).headers["location"] == "/gallery"
        assert browser.get(back).headers["location"] == "/sign-in?problem=refused"


def test_sign_in_never_redirects_to_another_site(openid_service: Service) -> None:
    with new_browser(openid_service) as browser:
        for to in ("https://elsewhere.test/", "//elsewhere.test", "/\\elsewhere.test"):
            assert browser.get(get_callback_url(browser, ADA, to)).headers["location"] == "/"


def test_authorization_request_has_nonce_scope_and_challenge(openid_service: Service) -> None:
    with new_browser(openid_service) as browser:
        query = parse_qs(urlsplit(browser.get("/v1/session/openid").headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == [f"{openid_service.base_url}/v1/session/openid/back"]
    assert query["nonce"]
    assert query["scope"] == ["openid email"]


def test_unreachable_provider_is_reported(start_service: StartService) -> None:
    openid = OpenIdSettings.model_validate({"issuer": f"http://127.0.0.1:{free_port()}", "client_id": "gen-serve"})
    with new_browser(start_service(accounts=AccountSettings(openid=openid))) as browser:
        assert browser.get("/v1/session/openid").headers["location"] == "/sign-in?problem=out-of-reach"


def test_openid_is_off_without_a_provider(service: Service) -> None:
    with new_browser(service) as browser:
        assert browser.get("/v1/session/openid").status_code == 404
        assert browser.get("/v1/session").json()["openid"] is None
