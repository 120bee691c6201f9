"""Sessions of browsers, passwords and invitations."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from argon2 import PasswordHasher
from redis import Redis
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, StartService

from serve_app.accounts.members import FREE_FAILURES
from serve_app.accounts.names import fold_stored_names
from serve_app.accounts.roles import Role
from serve_app.config.settings import AccountSettings, ServiceSettings

HERE = {"sec-fetch-site": "same-origin"}
"""Header that browsers send with requests of this service's own pages."""
PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def cheap_hashing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves time, and keeps guesses closer together than the wait that the limiter asks for."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(service.app.state.services.accounts.people, "_hasher", cheap)


def forget_sessions(service: Service) -> None:
    """Empties the cache of sessions, which expires in ten seconds."""
    service.app.state.services.auth.session_resolver._cache.clear()


class Browser(httpx2.Client):
    """Sends requests of the service's own pages, without a key."""

    def __init__(self, service: Service) -> None:
        super().__init__(base_url=service.base_url, headers=HERE, timeout=60, trust_env=False)

    def sign_in(self, name: str, password: str = PASSWORD, **headers: str) -> httpx2.Response:
        return self.post("/v1/session", json={"name": name, "password": password}, headers=headers)

    def sign_in_with_key(self, secret: str) -> httpx2.Response:
        return self.post("/v1/session", json={"key": secret})

    def accept(self, link: str, name: str, password: str = PASSWORD) -> httpx2.Response:
        """Accepts an invitation."""
        secret = {"x-secret": link.partition("#")[2]}
        return self.post("/v1/invitation", headers=secret, json={"name": name, "password": password})

    def session(self) -> dict[str, Any]:
        return self.get("/v1/session").json()

    def submit(self, **headers: str) -> httpx2.Response:
        return self.post(ENDPOINT, json={"prompt": "a red star"}, headers=headers)


@pytest.fixture
def browser(service: Service) -> Iterator[Browser]:
    with Browser(service) as browser:
        yield browser


@pytest.fixture
def other_browser(service: Service) -> Iterator[Browser]:
    with Browser(service) as browser:
        yield browser


@pytest.fixture
def name(administrator: Client) -> str:
    return f"ada-{administrator.project}@example.com"


def create_invitation(administrator: httpx2.Client, role: Role = Role.DEVELOPER) -> str:
    """Returns the link."""
    return administrator.post("/v1/invitations", json={"role": role}).raise_for_status().json()["link"]


def invite(administrator: Client, browser: Browser, name: str, role: Role = Role.DEVELOPER) -> httpx2.Response:
    """Creates an invitation and accepts it in the browser."""
    link = create_invitation(administrator, role)
    invitation = browser.get("/v1/invitation", headers={"x-secret": link.partition("#")[2]}).json()
    assert (invitation["organization"], invitation["role"]) == (administrator.organization, role)
    return browser.accept(link, name)


def list_members(administrator: Client) -> list[str]:
    return [member["person"] for member in administrator.get("/v1/admin/members").json()["members"]]


def remove_member(administrator: Client, name: str) -> None:
    administrator.delete(f"/v1/admin/members/{name}").raise_for_status()


def test_session_of_a_key_has_its_permissions(client: Client, browser: Browser) -> None:
    answer = browser.sign_in_with_key(client.secret)
    assert answer.json()["project"] == client.project
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.secret not in cookie
    task_id = browser.submit().json()["id"]
    assert task_id in [task["id"] for task in client.get("/v1/tasks").json()["tasks"]]
    assert browser.delete(f"/v1/tasks/{task_id}").status_code == 200

    assert browser.delete("/v1/session").status_code == 204
    assert browser.session()["signed_in"] is False
    assert refusal(browser.get("/v1/credits"), 403) == "Not authenticated"


@pytest.mark.parametrize("body", [{"key": "gen_wrong"}, {"name": "nobody", "password": "wrong"}, {"local": True}])
def test_unknown_credentials_begin_no_session(browser: Browser, body: dict[str, str]) -> None:
    answer = browser.post("/v1/session", json=body)
    assert refusal(answer, 403)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this machine
        {"origin": "https://elsewhere.test"},
        {},
    ],
)
def test_cross_site_requests_cannot_use_a_session(
    service: Service, client: Client, browser: Browser, headers: dict[str, str]
) -> None:
    browser.sign_in_with_key(client.secret)
    del browser.headers["sec-fetch-site"]
    assert "own pages" in refusal(browser.submit(**headers), 403)
    assert refusal(browser.post("/v1/session", json={"key": client.secret}, headers=headers), 403)
    assert client.get("/v1/tasks").json()["tasks"] == []
    # Older browsers send `Origin` only. A key counts from any origin.
    assert browser.submit(origin=service.base_url).status_code == 200
    assert browser.submit(**headers, **{"x-key": client.secret}).status_code == 200


# Invitations


def test_invitation_adds_a_member_whose_name_ignores_case(
    administrator: Client, browser: Browser, other_browser: Browser, name: str
) -> None:
    answer = invite(administrator, browser, name.replace("ada", "Ada"))
    assert answer.status_code == 200, answer.text
    assert (answer.json()["name"], answer.json()["role"]) == (name, "developer")
    assert administrator.get("/v1/admin/members").json()["members"] == [{"person": name, "role": "developer"}]
    assert browser.submit().status_code == 200
    assert refusal(browser.post("/v1/invitations", json={"role": "viewer"}), 403)

    assert other_browser.sign_in(name, "wrong").status_code == 403
    assert other_browser.sign_in(name.upper()).json()["name"] == name
    assert invite(administrator, browser, name.title()).json()["name"] == name
    assert list_members(administrator) == [name]
    remove_member(administrator, name)
    assert "no member" in refusal(other_browser.sign_in(name), 403)


def test_invitation_cannot_take_the_name_of_another_member(
    administrator: Client, service: Service, browser: Browser, name: str
) -> None:
    """The member of another organization signs in with tokens: the name has its permissions."""
    organization = service.worker.new_organization(credits=1)
    service.worker.new_project(organization)
    service.worker.run(service.worker.organizations.set_member(organization, name, Role.ADMINISTRATOR, "test"))
    assert refusal(invite(administrator, browser, name), 409) == "There is someone of that name"
    assert browser.sign_in(name).status_code == 403


def test_parallel_acceptances_of_an_invitation_add_one_member(
    administrator: Client, service: Service, name: str
) -> None:
    link = create_invitation(administrator)
    names = [f"{number}-{name}" for number in range(4)]

    def accept(name: str) -> int:
        with Browser(service) as browser:
            return browser.accept(link, name).status_code

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(accept, names)) == [200, 404, 404, 404]
    assert list_members(administrator) == [name for name in names if service.worker.has(f"person:{name}")]
    assert len(list_members(administrator)) == 1


def test_invitation_of_a_known_person_needs_their_password(
    administrator: Client, browser: Browser, other_browser: Browser, name: str
) -> None:
    invite(administrator, browser, name).raise_for_status()
    link = create_invitation(administrator, Role.VIEWER)
    assert "another password" in refusal(other_browser.accept(link, name, "another one of mine"), 409)
    assert other_browser.session()["signed_in"] is False
    assert other_browser.accept(link, name).json()["role"] == "developer", "a lower role changes nothing"


def test_invitations_of_a_removed_member_are_void(
    administrator: Client, browser: Browser, other_browser: Browser, name: str
) -> None:
    invite(administrator, browser, name, Role.ADMINISTRATOR).raise_for_status()
    link = create_invitation(browser, Role.ADMINISTRATOR)
    remove_member(administrator, name)
    assert other_browser.accept(link, f"other-{name}").status_code == 404


def test_membership_of_an_unknown_address_needs_an_invitation(
    administrator: Client, service: Service, browser: Browser, name: str
) -> None:
    """Anyone can enrol with an address, so a grant to it could reach a stranger."""
    with service.client(role=Role.ADMINISTRATOR, organization=service.worker.new_organization(credits=1)) as mallory:
        invite(mallory, browser, name).raise_for_status()
    for address in (name, name.upper(), f"new-{name}"):
        put = administrator.put(f"/v1/admin/members/{address}", json={"role": "administrator"})
        assert "invitation" in refusal(put, 409)
    assert browser.put("/v1/session", json={"project": administrator.project}).status_code == 404
    assert list_members(administrator) == []
    # A member by an invitation of this organization can be granted more.
    invite(administrator, browser, name, Role.VIEWER).raise_for_status()
    put = administrator.put(f"/v1/admin/members/{name}", json={"role": "administrator"})
    assert put.status_code == 200


def test_administrator_cannot_remove_people_of_another_organization(
    administrator: Client, service: Service, browser: Browser, other_browser: Browser, name: str
) -> None:
    invite(administrator, browser, name).raise_for_status()
    organization = service.worker.new_organization(credits=1)
    with service.client(role=Role.ADMINISTRATOR, organization=organization) as other:
        assert other.delete(f"/v1/admin/members/{name}").status_code == 404
        # The person joins there, too, and the first session stays in the first organization.
        invite(other, other_browser, name).raise_for_status()
        assert other_browser.session()["organization"] == organization
        assert browser.session()["organization"] == administrator.organization
        remove_member(other, name)
        forget_sessions(service)
        assert (browser.session()["signed_in"], other_browser.session()["signed_in"]) == (True, False)


def test_later_membership_does_not_change_the_first_organization(
    administrator: Client, service: Service, browser: Browser, name: str
) -> None:
    invite(administrator, browser, name).raise_for_status()
    worker = service.worker
    later = worker.new_organization(credits=1)
    worker.new_project(later)
    worker.run(worker.organizations.set_member(later, name, Role.ADMINISTRATOR, "test"))
    assert browser.sign_in(name).json()["organization"] == administrator.organization


def test_administrator_switches_between_projects_of_the_organization(
    administrator: Client, other_client: Client, browser: Browser
) -> None:
    other = f"{administrator.project}-other"
    administrator.post("/v1/admin/projects", json={"id": other}).raise_for_status()
    assert other in browser.sign_in_with_key(administrator.secret).json()["projects"]
    assert browser.put("/v1/session", json={"project": other}).json()["project"] == other
    for project in (other_client.project, "no-such-project"):
        assert refusal(browser.put("/v1/session", json={"project": project}), 404) == "There is no such project"
    task_id = browser.submit().json()["id"]
    assert administrator.get("/v1/tasks").json()["tasks"] == []
    assert [task["id"] for task in browser.get("/v1/tasks").json()["tasks"]] == [task_id]


# Passwords


def test_new_password_signs_out_other_browsers(
    administrator: Client, operator: Client, service: Service, browser: Browser, other_browser: Browser, name: str
) -> None:
    invite(administrator, browser, name).raise_for_status()
    other_browser.sign_in(name).raise_for_status()
    wrong = browser.put("/v1/session/password", json={"password": "wrong", "new": "another horse"})
    assert refusal(wrong, 403)
    changed = browser.put("/v1/session/password", json={"password": PASSWORD, "new": "another horse"})
    assert changed.json()["name"] == name
    assert browser.session()["signed_in"] is True
    forget_sessions(service)
    assert other_browser.session()["signed_in"] is False
    assert other_browser.sign_in(name).status_code == 403
    assert other_browser.sign_in(name, "another horse").status_code == 200
    # Someone who forgot the password is invited again.
    deletions = [operator.delete(f"/v1/admin/people/{name}").status_code for _ in range(2)]
    assert deletions == [204, 404]
    forget_sessions(service)
    assert browser.session()["signed_in"] is False
    remove_member(administrator, name)
    assert invite(administrator, browser, name).status_code == 200


def test_wrong_passwords_are_limited_by_name_and_address(
    administrator: Client, browser: Browser, other_browser: Browser, name: str
) -> None:
    """The forwarded address of the last proxy counts, not those that clients claim."""
    invite(administrator, other_browser, name).raise_for_status()
    hops = [f"10.0.0.{number}, 192.0.2.1" for number in range(FREE_FAILURES + 1)]
    answers = [browser.sign_in(name, "a guess", **{"x-forwarded-for": hop}) for hop in hops]
    assert [answer.status_code for answer in answers] == [403] * FREE_FAILURES + [429]
    assert int(answers[-1].headers["retry-after"]) > 0
    # Otherwise the response would reveal the right password.
    assert browser.sign_in(name.upper(), **{"x-forwarded-for": "192.0.2.1"}).status_code == 429
    assert browser.sign_in(name, "a guess", **{"x-forwarded-for": "192.0.2.2"}).status_code == 403


def test_people_of_an_earlier_release_sign_in_in_any_case(
    administrator: Client, service: Service, browser: Browser, other_browser: Browser, name: str
) -> None:
    invite(administrator, browser, name).raise_for_status()
    prefix, members = service.settings.redis.prefix, f"members:{administrator.organization}"
    with Redis.from_url(service.settings.redis_url) as redis:
        redis.rename(f"{prefix}person:{name}", f"{prefix}person:{name.title()}")
        redis.rename(f"{prefix}{members}", f"{prefix}members:was")
        redis.hset(f"{prefix}{members}", name.title(), "developer")
        redis.sadd(f"{prefix}organizations", administrator.organization)
    service.worker.run(fold_stored_names(service.worker.redis, prefix))
    session = other_browser.sign_in(name.upper()).json()
    assert (session["name"], session["role"]) == (name, "developer")


# Settings


def test_local_session_has_the_configured_role(start_service: StartService) -> None:
    service = start_service(accounts=AccountSettings(local_role=Role.OPERATOR))
    with Browser(service) as browser:
        assert browser.session()["local"] is True
        session = browser.post("/v1/session", json={"local": True}).json()
        assert (session["name"], session["role"], session["project"]) == ("local", "operator", "default")
        assert browser.get("/v1/admin/organizations").status_code == 200


def test_https_session_needs_the_host_cookie(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(public_url="https://media.example.com"))
    with service.client() as client, Browser(service) as browser:
        browser.sign_in_with_key(client.secret).raise_for_status()
        (secret,) = [cookie.value for cookie in browser.cookies.jar if cookie.name == "__Host-gen_session"]
        browser.cookies.clear()
        for name, signed_in in (("gen_session", False), ("__Host-gen_session", True)):
            session = browser.get("/v1/session", headers={"cookie": f"{name}={secret}"}).json()
            assert session["signed_in"] is signed_in
