"""OAuth 2.1 clients: registration, consent, tokens, and what their tokens may do."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, StartService

from serve_app.accounts.oauth import MAX_CONSENT_REQUESTS, MAX_REGISTRATIONS
from serve_app.accounts.roles import Role
from serve_app.config.settings import AccountSettings

BACK = "http://127.0.0.1:7777/back"
CONSENT = "/v1/consent"
VERIFIER = secrets.token_urlsafe(48)
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


class OAuthClient(httpx2.Client):
    """A client that registers when it is opened. Its user is signed in in `browser`."""

    def __init__(self, service: Service, browser: httpx2.Client, redirect_uri: str = BACK) -> None:
        super().__init__(base_url=service.base_url, trust_env=False, timeout=60)
        self.browser = browser
        self.redirect_uri = redirect_uri

    def __enter__(self) -> Self:
        super().__enter__()
        registration = {"redirect_uris": [self.redirect_uri], "client_name": "Sketch\u0007pad"}
        self.registered = self.post("/oauth/register", json=registration | {"token_endpoint_auth_method": "none"})
        self.id = self.registered.json().get("client_id", "")
        return self

    def authorize(self, **more: str) -> httpx2.Response:
        query = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": BACK,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "mine",
        }
        return self.get("/oauth/authorize", params=query | more)

    def request_consent(self) -> dict[str, str]:
        """Starts an authorization. Returns the headers that name the consent request."""
        page, _, secret = self.authorize().headers["location"].partition("#")
        assert page == "/consent"
        return {"x-secret": secret}

    def answer_consent(self, consent: dict[str, str], **answer: object) -> dict[str, str]:
        """Answers for the browser's project. Returns the query of the redirect."""
        project = self.browser.get("/v1/session").json()["project"]
        answer = {"project": project, **answer}
        redirect = self.browser.post(CONSENT, headers=consent, json=answer).raise_for_status().json()["redirect"]
        assert redirect.startswith(BACK)
        return {name: value for name, (value,) in parse_qs(urlsplit(redirect).query).items()}

    def fetch(self, code: str, verifier: str = VERIFIER) -> httpx2.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": verifier}
        return self.post("/oauth/token", data=form | {"client_id": self.id})

    def refresh(self, token: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.id}
        return self.post("/oauth/token", data=form)

    def get_tokens(self, **answer: object) -> dict[str, str]:
        code = self.answer_consent(self.request_consent(), allow=True, **answer)["code"]
        return self.fetch(code).raise_for_status().json()

    def get_with_token(self, tokens: dict[str, str], path: str = "/v1/credits", **headers: str) -> httpx2.Response:
        return self.get(path, headers=bearer(tokens) | headers)


def bearer(tokens: dict[str, str]) -> dict[str, str]:
    return {"authorization": f"Bearer {tokens['access_token']}"}


@contextmanager
def open_browser(service: Service, secret: str) -> Iterator[httpx2.Client]:
    headers = {"sec-fetch-site": "same-origin"}
    with httpx2.Client(base_url=service.base_url, headers=headers, trust_env=False, timeout=60) as browser:
        browser.post("/v1/session", json={"key": secret}).raise_for_status()
        yield browser


@pytest.fixture
def browser(service: Service, client: Client) -> Iterator[httpx2.Client]:
    """A browser with the session of a developer."""
    with open_browser(service, client.secret) as browser:
        yield browser


@pytest.fixture
def oauth(service: Service, browser: httpx2.Client) -> Iterator[OAuthClient]:
    with OAuthClient(service, browser) as oauth:
        yield oauth


@contextmanager
def open_administrator(service: Service, organization: str) -> Iterator[tuple[OAuthClient, str, str]]:
    """Yields a client of an administrator, the project of the administrator's session, and another one."""
    here, there = service.worker.new_project(organization), service.worker.new_project(organization)
    with (
        service.client(here, role=Role.ADMINISTRATOR, organization=organization) as administrator,
        open_browser(service, administrator.secret) as browser,
        OAuthClient(service, browser) as oauth,
    ):
        yield oauth, here, there


def test_metadata_names_endpoints_and_challenge_methods(service: Service, oauth: OAuthClient) -> None:
    resource = oauth.get("/.well-known/oauth-protected-resource/mcp").json()
    assert resource["resource"] == f"{service.base_url}/mcp"
    assert resource["authorization_servers"] == [service.base_url]
    server = oauth.get("/.well-known/oauth-authorization-server").json()
    assert (server["issuer"], server["token_endpoint"]) == (service.base_url, f"{service.base_url}/oauth/token")
    assert server["code_challenge_methods_supported"] == ["S256"]


def test_consent_gives_tokens_for_the_project(service: Service, client: Client, oauth: OAuthClient) -> None:
    consent = oauth.request_consent()
    shown = {"client": "Sketch pad", "goes_to": "127.0.0.1", "roles": ["developer"]}
    assert oauth.browser.get(CONSENT, headers=consent).json() == shown
    redirect_query = oauth.answer_consent(consent, allow=True)
    assert (redirect_query["state"], redirect_query["iss"]) == ("mine", service.base_url)
    tokens = oauth.fetch(redirect_query["code"]).json()
    assert (tokens["organization"], tokens["project"]) == (client.organization, client.project)
    assert tokens["scope"] == "developer"
    response = oauth.post(ENDPOINT, json={"prompt": "a red star"}, headers=bearer(tokens))
    assert response.json()["id"] in [task["id"] for task in client.get("/v1/tasks").json()["tasks"]]


def test_consent_needs_a_session_of_the_same_site(client: Client, oauth: OAuthClient) -> None:
    consent = oauth.request_consent()
    assert refusal(client.post(CONSENT, headers=consent, json={"allow": True}), 403) == "Sign in first"
    elsewhere = consent | {"sec-fetch-site": "cross-site"}
    assert oauth.browser.post(CONSENT, json={"allow": True}, headers=elsewhere).status_code == 403
    assert oauth.answer_consent(consent, allow=False)["error"] == "access_denied"
    assert oauth.browser.post(CONSENT, headers=consent, json={"allow": True}).status_code == 404


def test_code_needs_its_verifier_and_reuse_revokes_its_tokens(oauth: OAuthClient) -> None:
    assert "error=invalid_request" in oauth.authorize(resource="https://elsewhere.test/mcp").headers["location"]
    code = oauth.answer_consent(oauth.request_consent(), allow=True)["code"]
    wrong = oauth.fetch(code, "another" * 8)
    assert (wrong.status_code, wrong.json()["error"]) == (400, "invalid_grant")
    tokens = oauth.fetch(code).raise_for_status().json()
    assert oauth.fetch(code).json()["error"] == "invalid_grant"
    assert oauth.get_with_token(tokens).status_code == 401


def test_reused_refresh_token_revokes_all_tokens(oauth: OAuthClient) -> None:
    first = oauth.get_tokens()
    second = oauth.refresh(first["refresh_token"]).json()
    assert oauth.get_with_token(second).status_code == 200
    assert oauth.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert oauth.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"


def test_client_revokes_its_tokens(oauth: OAuthClient, service: Service) -> None:
    tokens = oauth.get_tokens()
    form = {"token": tokens["refresh_token"], "client_id": oauth.id, "client_secret": ""}
    assert oauth.post("/oauth/revoke", data=form).status_code == 200
    refused = oauth.get_with_token(tokens)
    assert refused.status_code == 401
    assert "resource_metadata" in refused.headers["www-authenticate"]


def test_person_revokes_an_authorization(oauth: OAuthClient) -> None:
    tokens = oauth.get_tokens()
    (authorization,) = oauth.browser.get("/v1/authorizations").json()["authorizations"]
    assert (authorization["client"], authorization["role"]) == ("Sketch pad", "developer")
    assert authorization["everywhere"] is False
    assert oauth.browser.delete(f"/v1/authorizations/{authorization['id']}").status_code == 204
    assert oauth.get_with_token(tokens).status_code == 401
    assert oauth.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_client_needs_consent_for_other_projects(service: Service) -> None:
    organization = service.worker.new_organization(credits=100)
    foreign = service.worker.new_project(service.worker.new_organization(credits=1))
    with open_administrator(service, organization) as (oauth, here, there):
        at_home, roaming = (oauth.get_tokens(everywhere=each) for each in (False, True))
        for project, tokens, status in (
            (there, at_home, 401),
            (there, roaming, 200),
            (foreign, roaming, 401),
            (here, at_home, 200),
        ):
            response = oauth.get_with_token(tokens, "/v1/tasks", **{"x-project": project})
            assert response.status_code == status
        assert refusal(oauth.get_with_token(roaming, "/v1/admin/audit"), 403)


def test_revoked_key_revokes_its_authorizations(service: Service, client: Client, oauth: OAuthClient) -> None:
    tokens = oauth.get_tokens()
    [key] = service.worker.run(service.worker.keys.list(client.project))
    service.worker.run(service.worker.keys.revoke(key.id))
    service.app.state.services.auth.callers._cache.clear()
    assert oauth.get_with_token(tokens).status_code == 401


@pytest.mark.parametrize(
    "uri",
    ["javascript:alert(1)", "http://example.com/back", "https://example.com/back#x", "data:text/html,x", "ms-msdt:x"],
)
def test_unsafe_redirect_uris_are_refused(service: Service, browser: httpx2.Client, uri: str) -> None:
    with OAuthClient(service, browser, uri) as oauth:
        answer = oauth.registered
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri")


def test_registrations_of_an_address_are_limited(service: Service) -> None:
    headers = {"x-forwarded-for": "192.0.2.9"}
    with httpx2.Client(base_url=service.base_url, headers=headers, trust_env=False, timeout=60) as http:
        registration = {"redirect_uris": [BACK]}
        answers = [http.post("/oauth/register", json=registration) for _ in range(MAX_REGISTRATIONS + 1)]
    assert [answer.status_code for answer in answers] == [201] * MAX_REGISTRATIONS + [429]
    assert int(answers[-1].headers["retry-after"]) > 0


def test_setting_turns_oauth_clients_off(start_service: StartService) -> None:
    service = start_service(accounts=AccountSettings(oauth_clients=False))
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        for path in ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource"):
            assert http.get(path).status_code == 404
        assert http.post("/oauth/register", json={"redirect_uris": [BACK]}).status_code in (404, 405)


def test_requests_do_not_prolong_the_cache_of_a_token(service: Service, oauth: OAuthClient) -> None:
    """Otherwise a busy client could go on after its authorization is revoked."""
    tokens = oauth.get_tokens()
    links = service.app.state.services.auth.token_authentication._cache._TTLCache__links
    assert oauth.get_with_token(tokens).status_code == 200
    until = links[tokens["access_token"]].expires
    assert oauth.get_with_token(tokens).status_code == 200
    assert links[tokens["access_token"]].expires == until


def test_consent_is_refused_for_another_project_than_shown(service: Service) -> None:
    organization = service.worker.new_organization(credits=1)
    with open_administrator(service, organization) as (oauth, here, there):
        consent = oauth.request_consent()
        oauth.browser.put("/v1/session", json={"project": there}).raise_for_status()
        moved = oauth.browser.post(CONSENT, headers=consent, json={"allow": True, "project": here})
        assert there in refusal(moved, 409)
        assert oauth.answer_consent(consent, allow=True)["code"]


def test_consent_requests_of_an_address_are_limited(service: Service) -> None:
    headers = {"x-forwarded-for": "192.0.2.7"}
    with (
        httpx2.Client(base_url=service.base_url, headers=headers, trust_env=False, timeout=60) as browser,
        OAuthClient(service, browser) as oauth,
    ):
        oauth.headers.update(headers)
        locations = [oauth.authorize().headers["location"] for _ in range(MAX_CONSENT_REQUESTS + 1)]
        assert "error=temporarily_unavailable" in locations[-1]
        assert "#" in locations[-2]
        oauth.headers["x-forwarded-for"] = "192.0.2.8"
        assert "#" in oauth.authorize().headers["location"]


def test_keys_are_not_for_clients_and_tools_not_for_sessions(
    service: Service, browser: httpx2.Client, oauth: OAuthClient
) -> None:
    """A key would outlive the authorization of the client that made it."""
    keys = "/v1/admin/keys"
    assert browser.post(keys, json={"name": "mine"}).status_code == 201
    assert oauth.post(keys, json={"name": "mine"}, headers=bearer(oauth.get_tokens())).status_code == 403
    assert browser.post("/mcp", json={}).status_code == 401
