"""Signing in by an OpenID provider. Providers differ: slashes, client secrets, capital letters, booleans as text."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from redis.asyncio import Redis
from support.http_service import Service, StartService, running
from support.issuer import KEY
from support.published_clients import python_environment
from support.website import Website, serving

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.jwt_auth import IssuerUnreachable, fetch_keys
from serve_app.accounts.openid import OpenId, SignInRefused
from serve_app.accounts.roles import Role
from serve_app.accounts.settings import OpenIdSettings
from serve_app.config.settings import AccountSettings
from serve_app.launcher.embedded_redis import free_port

ADA = "ada@example.com"
SECRET = "s3cret"
CALLBACK = "/v1/session/openid/back"


@pytest.fixture(scope="module")
def site() -> Iterator[Website]:
    """The website of the provider."""
    with serving("127.0.0.1") as site:
        yield site


def publish_metadata(site: Website, issuer: str, **metadata: Any) -> None:
    keys = site.set_page("/jwks", json.dumps({"keys": [KEY.public_jwk()]}).encode())
    metadata |= {"issuer": issuer, "jwks_uri": keys}
    metadata |= {"authorization_endpoint": site.url("/authorize"), "token_endpoint": site.url("/token")}
    site.set_page("/gen/.well-known/openid-configuration", json.dumps(metadata).encode())


def publish_token(site: Website, authorization: str, issuer: str, **claims: Any) -> str:
    """Publishes the token that answers an authorization request. Returns the state of the request."""
    query = parse_qs(urlsplit(authorization).query)
    defaults = {"iss": issuer, "aud": "gen-serve", "sub": "1", "exp": time.time() + 60, "nonce": query["nonce"][0]}
    answer = {"access_token": "x", "token_type": "Bearer", "id_token": KEY.sign(defaults | claims)}
    site.set_page("/token", json.dumps(answer).encode(), content_type="application/json")
    return query["state"][0]


def make_settings(issuer: str) -> OpenIdSettings:
    return OpenIdSettings.model_validate({"issuer": issuer, "client_id": "gen-serve", "client_secret": SECRET})


# Providers


async def sign_in(
    site: Website, redis: Redis, prefix: str, configured: str = "/gen", issuer: str = "/gen", **claims: Any
) -> str:
    """Signs in at a provider that calls itself `issuer`. Returns the person's name."""
    openid = OpenId(redis, prefix, make_settings(site.url(configured)), fetch_keys)
    url, _ = await openid.begin("http://media.test/back", "/gallery", "")
    state = publish_token(site, url, site.url(issuer), **{"email": ADA, "email_verified": True} | claims)
    name, _ = await openid.finish("http://media.test/back", state, "code")
    return name


@pytest.mark.parametrize(("configured", "issuer"), [("/gen", "/gen/"), ("/gen/", "/gen"), ("/gen/", "/gen/")])
async def test_trailing_slash_of_the_issuer_does_not_count(
    site: Website, redis: Redis, prefix: str, configured: str, issuer: str
) -> None:
    publish_metadata(site, site.url(issuer))
    assert await sign_in(site, redis, prefix, configured, issuer, email="Ada@Example.com") == ADA


async def test_metadata_of_another_issuer_is_refused(site: Website, redis: Redis, prefix: str) -> None:
    publish_metadata(site, site.url("/other"))
    with pytest.raises(IssuerUnreachable):
        await sign_in(site, redis, prefix)


@pytest.mark.parametrize(
    ("metadata", "in_body"),
    [
        ({}, False),
        ({"token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"]}, False),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_post"]}, True),
    ],
    ids=["default", "basic", "post"],
)
async def test_client_secret_is_sent_as_the_provider_supports_it(
    site: Website, redis: Redis, prefix: str, metadata: dict[str, Any], in_body: bool
) -> None:
    publish_metadata(site, site.url("/gen"), **metadata)
    await sign_in(site, redis, prefix, email_verified="true")
    headers, body = site.received[-1]
    basic = base64.b64encode(f"gen-serve:{SECRET}".encode()).decode()
    assert headers.get("authorization") == (None if in_body else f"Basic {basic}")
    assert (f"client_secret={SECRET}" in body.decode()) is in_body


@pytest.mark.parametrize(
    "claims",
    [
        {"email_verified": False},
        {"email_verified": "false"},
        {"email_verified": None},
        {"email": ""},
        {"nonce": "another"},
        {"aud": "another"},
    ],
    ids=str,
)
async def test_token_that_proves_no_address_is_refused(
    site: Website, redis: Redis, prefix: str, claims: dict[str, Any]
) -> None:
    publish_metadata(site, site.url("/gen"))
    with pytest.raises(SignInRefused):
        await sign_in(site, redis, prefix, **claims)


# Sessions of browsers


@pytest.fixture(scope="module")
def openid_service(
    site: Website, redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    publish_metadata(site, site.url("/gen"))
    accounts = AccountSettings(openid=make_settings(site.url("/gen")))
    with running(tmp_path_factory.mktemp("openid"), redis_url, repository, accounts=accounts) as service:
        add_member(service)
        yield service


def add_member(service: Service) -> None:
    organizations = service.worker.organizations
    service.worker.run(organizations.set_member(DEFAULT_ORGANIZATION, ADA, Role.DEVELOPER, "test"))
    service.worker.new_key("default")


def new_browser(service: Service) -> httpx2.Client:
    return httpx2.Client(
        base_url=service.base_url, headers={"sec-fetch-site": "same-origin"}, timeout=60, trust_env=False
    )


@pytest.fixture
def browser(openid_service: Service) -> Iterator[httpx2.Client]:
    with new_browser(openid_service) as browser:
        yield browser


def begin(browser: httpx2.Client, to: str = "/gallery") -> str:
    """Returns the URL at the provider."""
    return browser.get("/v1/session/openid", params={"to": to}).headers["location"]


def get_callback(browser: httpx2.Client, site: Website, to: str = "/gallery", email: str = ADA, **claims: Any) -> str:
    """Signs in at the provider. Returns the callback URL on this service."""
    claims = {"email": email, "email_verified": True} | claims
    return f"{CALLBACK}?code=code&state={publish_token(site, begin(browser, to), site.url('/gen'), **claims)}"


def test_member_signs_in_and_returns_to_the_requested_page(browser: httpx2.Client, site: Website) -> None:
    assert browser.get("/v1/session").json()["openid"] == "127.0.0.1"
    answer = browser.get(get_callback(browser, site))
    assert (answer.status_code, answer.headers["location"]) == (302, "/gallery")
    session = browser.get("/v1/session").json()
    assert (session["name"], session["role"]) == (ADA, "developer")


@pytest.mark.parametrize(
    ("claims", "problem"), [({"email_verified": False}, "refused"), ({"email": "eve@example.com"}, "no-member")]
)
def test_unverified_and_unknown_people_are_refused(
    browser: httpx2.Client, site: Website, claims: dict[str, Any], problem: str
) -> None:
    answer = browser.get(get_callback(browser, site, **claims))
    assert answer.headers["location"] == f"/sign-in?problem={problem}"
    assert browser.get("/v1/session").json()["signed_in"] is False


def test_callback_counts_once_and_in_its_browser(
    browser: httpx2.Client, site: Website, openid_service: Service
) -> None:
    callback = get_callback(browser, site)
    with new_browser(openid_service) as another:
        assert another.get(callback).headers["location"] == "/sign-in?problem=refused"
    assert browser.get(callback).headers["location"] == "/gallery"
    assert browser.get(callback).headers["location"] == "/sign-in?problem=refused"


@pytest.mark.parametrize("to", ["https://elsewhere.test/", "//elsewhere.test", "/\\elsewhere.test"])
def test_sign_in_never_redirects_to_another_site(browser: httpx2.Client, site: Website, to: str) -> None:
    assert browser.get(get_callback(browser, site, to)).headers["location"] == "/"


def test_authorization_is_bound_by_challenge_and_callback(
    browser: httpx2.Client, site: Website, openid_service: Service
) -> None:
    authorization = begin(browser)
    query = parse_qs(urlsplit(authorization).query)
    assert (query["code_challenge_method"], query["scope"]) == (["S256"], ["openid email"])
    assert query["redirect_uri"] == [openid_service.base_url + CALLBACK]
    browser.get(f"{CALLBACK}?code=code&state={publish_token(site, authorization, site.url('/gen'))}")
    [verifier] = parse_qs(site.received[-1][1].decode())["code_verifier"]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    assert query["code_challenge"] == [challenge]


def test_unreachable_provider_is_reported(start_service: StartService) -> None:
    openid = make_settings(f"http://127.0.0.1:{free_port()}")
    with new_browser(start_service(accounts=AccountSettings(openid=openid))) as browser:
        assert browser.get("/v1/session/openid").headers["location"] == "/sign-in?problem=out-of-reach"


def test_openid_is_off_without_a_provider(service: Service) -> None:
    with new_browser(service) as browser:
        assert browser.get("/v1/session/openid").status_code == 404
        assert browser.get("/v1/session").json()["openid"] is None


@pytest.fixture
def published_provider(repository: Path) -> Iterator[str]:
    """The URL of a published provider that accepts every client and every person."""
    python, port = python_environment(repository, "openid"), free_port()
    command = [str(python), "-m", "oidc_provider_mock", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("running on" in line.lower() or "started" in line.lower() for line in process.stderr)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_member_signs_in_at_a_published_provider(start_service: StartService, published_provider: str) -> None:
    service = start_service(accounts=AccountSettings(openid=make_settings(published_provider)))
    add_member(service)
    # The provider says that it started before its port is open.
    transport = httpx2.HTTPTransport(retries=6)
    with new_browser(service) as browser, httpx2.Client(transport=transport, timeout=60) as provider:
        claims = {"email": ADA, "email_verified": True}
        provider.put(f"{published_provider}/users/{ADA}", json=claims).raise_for_status()
        callback = provider.post(begin(browser), data={"sub": ADA}).headers["location"]
        assert browser.get(callback).headers["location"] == "/gallery"
        assert browser.get("/v1/session").json()["name"] == ADA
