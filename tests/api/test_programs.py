"""Programs that people let in: the whole way of OAuth 2.1, and what a program's token is worth."""

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
from support.client import ENDPOINT, Client, refusal
from support.http_service import Service, StartService

from serve_app.accounts.oauth import MOST_ASKED, MOST_FROM_AN_ADDRESS
from serve_app.accounts.roles import Role
from serve_app.config.settings import AccountSettings

BACK = "http://127.0.0.1:7777/back"
CONSENT = "/v1/consent"
VERIFIER = secrets.token_urlsafe(48)
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


class Program:
    """One that signs in as its users expect; `browser` is where they are signed in."""

    def __init__(self, service: Service, browser: httpx2.Client, redirect_uri: str = BACK) -> None:
        self.http = httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60, follow_redirects=False)
        self.browser = browser
        told = {
            "redirect_uris": [redirect_uri],
            "client_name": "Sketch\u0007pad",
            "token_endpoint_auth_method": "none",
        }
        self.registered = self.http.post("/oauth/register", json=told)
        self.id = self.registered.json().get("client_id", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def ask(self, **more: str) -> httpx2.Response:
        query = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": BACK,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "mine",
        }
        return self.http.get("/oauth/authorize", params=query | more)

    def question(self, **more: str) -> dict[str, str]:
        """The headers that name what the person is asked."""
        page, _, secret = self.ask(**more).headers["location"].partition("#")
        assert page == "/consent"
        return {"x-secret": secret}

    def answered(self, question: dict[str, str], **answer: object) -> dict[str, str]:
        """What comes back with the browser, in the project that it is in."""
        project = self.browser.get("/v1/session").json()["project"]
        answer = {"project": project, **answer}
        redirect = self.browser.post(CONSENT, headers=question, json=answer).raise_for_status().json()["redirect"]
        assert redirect.startswith(BACK)
        return {name: value for name, (value,) in parse_qs(urlsplit(redirect).query).items()}

    def fetch(self, code: str, verifier: str = VERIFIER) -> httpx2.Response:
        given = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": verifier}
        return self.http.post("/oauth/token", data=given | {"client_id": self.id})

    def refresh(self, token: str) -> httpx2.Response:
        given = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.id}
        return self.http.post("/oauth/token", data=given)

    def let_in(self, **answer: object) -> dict[str, str]:
        code = self.answered(self.question(), allow=True, **answer)["code"]
        return self.fetch(code).raise_for_status().json()

    def get(self, path: str, token: str, **headers: str) -> httpx2.Response:
        return self.http.get(path, headers={"authorization": f"Bearer {token}", **headers})


@contextmanager
def signed_in(service: Service, secret: str) -> Iterator[httpx2.Client]:
    headers = {"sec-fetch-site": "same-origin"}
    with httpx2.Client(base_url=service.base_url, headers=headers, trust_env=False, timeout=60) as browser:
        browser.post("/v1/session", json={"key": secret}).raise_for_status()
        yield browser


@pytest.fixture
def browser(service: Service, client: Client) -> Iterator[httpx2.Client]:
    """Signed in as a developer."""
    with signed_in(service, client.secret) as browser:
        yield browser


@pytest.fixture
def program(service: Service, browser: httpx2.Client) -> Iterator[Program]:
    with Program(service, browser) as program:
        yield program


def test_documents_say_where_and_how(service: Service, program: Program) -> None:
    resource = program.http.get("/.well-known/oauth-protected-resource/mcp").json()
    assert resource["resource"] == f"{service.base_url}/mcp"
    assert resource["authorization_servers"] == [service.base_url]
    server = program.http.get("/.well-known/oauth-authorization-server").json()
    assert (server["issuer"], server["token_endpoint"]) == (service.base_url, f"{service.base_url}/oauth/token")
    assert server["code_challenge_methods_supported"] == ["S256"]


def test_a_person_lets_a_program_in(service: Service, client: Client, program: Program) -> None:
    question = program.question()
    assert program.browser.get(CONSENT, headers=question).json() == {
        "program": "Sketch pad",
        "goes_to": "127.0.0.1",
        "roles": ["developer"],
    }
    came_back = program.answered(question, allow=True)
    assert (came_back["state"], came_back["iss"]) == ("mine", service.base_url)
    told = program.fetch(came_back["code"]).json()
    assert (told["organization"], told["project"], told["scope"]) == (client.organization, client.project, "developer")

    made = program.http.post(
        ENDPOINT, json={"prompt": "a red star"}, headers={"authorization": f"Bearer {told['access_token']}"}
    )
    assert made.json()["id"] in [task["id"] for task in client.get("/v1/tasks").json()["tasks"]]


def test_neither_a_key_nor_another_site_answers(client: Client, program: Program) -> None:
    question = program.question()
    assert refusal(client.post(CONSENT, headers=question, json={"allow": True}), 403) == "Sign in first"
    elsewhere = question | {"sec-fetch-site": "cross-site"}
    assert program.browser.post(CONSENT, json={"allow": True}, headers=elsewhere).status_code == 403
    assert program.answered(question, allow=False)["error"] == "access_denied", "a program that is refused learns so"
    assert program.browser.post(CONSENT, headers=question, json={"allow": True}).status_code == 404


def test_codes_need_their_verifier_and_one_that_comes_twice_ends_what_it_was_for(program: Program) -> None:
    assert "error=invalid_request" in program.ask(resource="https://elsewhere.test/mcp").headers["location"]
    code = program.answered(program.question(), allow=True)["code"]
    wrong = program.fetch(code, "another" * 8)
    assert (wrong.status_code, wrong.json()["error"]) == (400, "invalid_grant")
    token = program.fetch(code).raise_for_status().json()["access_token"]
    assert program.fetch(code).json()["error"] == "invalid_grant"
    assert program.get("/v1/credits", token).status_code == 401


def test_refresh_tokens_serve_once_and_what_comes_twice_ends_all(program: Program) -> None:
    first = program.let_in()
    second = program.refresh(first["refresh_token"]).json()
    assert program.get("/v1/credits", second["access_token"]).status_code == 200
    assert program.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert program.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"


def test_what_a_program_gives_back_is_over(program: Program, service: Service) -> None:
    tokens = program.let_in()
    back = {"token": tokens["refresh_token"], "client_id": program.id, "client_secret": ""}
    assert program.http.post("/oauth/revoke", data=back).status_code == 200
    over = program.get("/v1/credits", tokens["access_token"])
    assert over.status_code == 401
    assert "resource_metadata" in over.headers["www-authenticate"]


def test_a_person_shuts_a_program_out(program: Program) -> None:
    tokens = program.let_in()
    (shown,) = program.browser.get("/v1/authorizations").json()["authorizations"]
    assert (shown["program"], shown["role"], shown["everywhere"]) == ("Sketch pad", "developer", False)
    assert program.browser.delete(f"/v1/authorizations/{shown['id']}").status_code == 204
    assert program.get("/v1/credits", tokens["access_token"]).status_code == 401
    assert program.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_program_goes_to_other_projects_only_where_it_was_said(service: Service) -> None:
    organization = service.worker.new_organization(credits=100)
    here, there = service.worker.new_project(organization), service.worker.new_project(organization)
    foreign = service.worker.new_project(service.worker.new_organization(credits=1))
    with (
        service.client(here, role=Role.ADMINISTRATOR, organization=organization) as administrator,
        signed_in(service, administrator.secret) as browser,
        Program(service, browser) as program,
    ):
        at_home, roaming = (program.let_in(everywhere=each) for each in (False, True))
        for project, tokens, status in (
            (there, at_home, 401),
            (there, roaming, 200),
            (foreign, roaming, 401),
            (here, at_home, 200),
        ):
            asked = program.get("/v1/tasks", tokens["access_token"], **{"x-project": project})
            assert asked.status_code == status
        assert refusal(program.get("/v1/admin/audit", roaming["access_token"]), 403)


def test_a_key_that_is_revoked_takes_its_programs_along(service: Service, client: Client, program: Program) -> None:
    tokens = program.let_in()
    key = next(key for key in service.worker.run(service.worker.keys.list(client.project)))
    service.worker.run(service.worker.keys.revoke(key.id))
    service.app.state.services.callers._cache.clear()  # as ten seconds do
    assert program.get("/v1/credits", tokens["access_token"]).status_code == 401


@pytest.mark.parametrize(
    "uri",
    ["javascript:alert(1)", "http://example.com/back", "https://example.com/back#x", "data:text/html,x", "ms-msdt:x"],
)
def test_codes_go_nowhere_that_leaks_them(service: Service, browser: httpx2.Client, uri: str) -> None:
    with Program(service, browser, uri) as program:
        answer = program.registered
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri")


def test_registrations_are_bounded(start_service: StartService) -> None:
    service = start_service()
    headers = {"x-forwarded-for": "192.0.2.9"}
    with httpx2.Client(base_url=service.base_url, headers=headers, trust_env=False, timeout=60) as http:
        told = {"redirect_uris": [BACK]}
        answers = [http.post("/oauth/register", json=told) for _ in range(MOST_FROM_AN_ADDRESS + 1)]
    assert [answer.status_code for answer in answers] == [201] * MOST_FROM_AN_ADDRESS + [429]
    assert int(answers[-1].headers["retry-after"]) > 0


def test_where_programs_are_not_wanted_nobody_asks(start_service: StartService) -> None:
    service = start_service(accounts=AccountSettings(oauth_clients=False))
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        for path in ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource"):
            assert http.get(path).status_code == 404
        assert http.post("/oauth/register", json={"redirect_uris": [BACK]}).status_code in (404, 405)


def test_a_program_that_is_busy_is_shut_out_as_soon_as_one_that_is_not(service: Service, program: Program) -> None:
    """Whoever asks again before ten seconds are over must not be remembered for ten more."""
    token = program.let_in()["access_token"]
    remembered = service.app.state.services.token_authentication._cache
    assert program.get("/v1/credits", token).status_code == 200
    until = remembered._TTLCache__links[token].expires
    assert program.get("/v1/credits", token).status_code == 200
    assert remembered._TTLCache__links[token].expires == until


def test_the_answer_is_for_the_project_that_was_shown(service: Service) -> None:
    organization = service.worker.new_organization(credits=1)
    here, there = service.worker.new_project(organization), service.worker.new_project(organization)
    with (
        service.client(here, role=Role.ADMINISTRATOR, organization=organization) as administrator,
        signed_in(service, administrator.secret) as browser,
        Program(service, browser) as program,
    ):
        question = program.question()
        browser.put("/v1/session", json={"project": there}).raise_for_status()
        moved = browser.post(CONSENT, headers=question, json={"allow": True, "project": here})
        assert there in refusal(moved, 409)
        assert program.answered(question, allow=True)["code"]


def test_questions_are_bounded(start_service: StartService) -> None:
    service = start_service()
    headers = {"x-forwarded-for": "192.0.2.7"}
    with (
        httpx2.Client(base_url=service.base_url, headers=headers, trust_env=False, timeout=60) as browser,
        Program(service, browser) as program,
    ):
        program.http.headers.update(headers)
        asked = [program.ask().headers["location"] for _ in range(MOST_ASKED + 1)]
        assert "error=temporarily_unavailable" in asked[-1]
        assert "#" in asked[-2]
        program.http.headers["x-forwarded-for"] = "192.0.2.8"
        assert "#" in program.ask().headers["location"]
