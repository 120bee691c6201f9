"""Sessions of browsers, passwords and invitations."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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
    make_hashing_cheap(service, monkeypatch)


def make_hashing_cheap(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps guesses closer together than the wait that the limiter asks for."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(service.app.state.services.accounts.people, "_hasher", cheap)


def forget_sessions(service: Service) -> None:
    """Empties the cache of sessions, which expires in ten seconds."""
    service.app.state.services.auth.session_resolver._cache.clear()


@pytest.fixture
def browser(service: Service) -> Iterator[httpx2.Client]:
    with new_browser(service) as client:
        yield client


def new_browser(service: Service) -> httpx2.Client:
    return httpx2.Client(base_url=service.base_url, headers=HERE, timeout=60, trust_env=False)


def invite(administrator: Client, browser: httpx2.Client, name: str, role: Role = Role.DEVELOPER) -> httpx2.Response:
    """Accepts an invitation in that browser."""
    link = administrator.post("/v1/invitations", json={"role": role.value}).raise_for_status().json()["link"]
    secret = link.partition("#")[2]
    invitation = browser.get("/v1/invitation", headers={"x-secret": secret}).json()
    assert (invitation["organization"], invitation["role"]) == (administrator.organization, role.value)
    return accept_invitation(browser, secret, {"name": name, "password": PASSWORD})


def accept_invitation(browser: httpx2.Client, secret: str, body: dict[str, str]) -> httpx2.Response:
    return browser.post("/v1/invitation", headers={"x-secret": secret}, json=body)


def test_session_of_a_key_has_its_permissions(client: Client, browser: httpx2.Client) -> None:
    answer = browser.post("/v1/session", json={"key": client.secret})
    assert answer.json()["project"] == client.project
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.secret not in cookie
    task_id = browser.post(ENDPOINT, json={"prompt": "a red star"}).json()["id"]
    assert task_id in [task["id"] for task in client.get("/v1/tasks").json()["tasks"]]
    assert browser.delete(f"/v1/tasks/{task_id}").status_code == 200

    assert browser.delete("/v1/session").status_code == 204
    assert browser.get("/v1/session").json()["signed_in"] is False
    assert refusal(browser.get("/v1/credits"), 403) == "Not authenticated"


@pytest.mark.parametrize("body", [{"key": "gen_wrong"}, {"name": "nobody", "password": "wrong"}, {"local": True}])
def test_unknown_credentials_begin_no_session(browser: httpx2.Client, body: dict[str, str]) -> None:
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
def test_cross_site_requests_cannot_use_a_session(service: Service, client: Client, headers: dict[str, str]) -> None:
    with new_browser(service) as browser:
        browser.post("/v1/session", json={"key": client.secret})
        del browser.headers["sec-fetch-site"]
        answer = browser.post(ENDPOINT, json={"prompt": "a red star"}, headers=headers)
        assert "own pages" in refusal(answer, 403)
        assert refusal(browser.post("/v1/session", json={"key": client.secret}, headers=headers), 403)
        assert client.get("/v1/tasks").json()["tasks"] == []
        # Older browsers send `Origin` only. A key counts from any origin.
        own = {"origin": service.base_url}
        assert browser.post(ENDPOINT, json={"prompt": "a red star"}, headers=own).status_code == 200
        with_key = {"x-key": client.secret, **headers}
        assert browser.post(ENDPOINT, json={"prompt": "a red star"}, headers=with_key).status_code == 200


def test_invitation_adds_a_member_whose_name_ignores_case(
    administrator: Client, service: Service, browser: httpx2.Client
) -> None:
    name = f"ada-{administrator.project}@example.com"
    answer = invite(administrator, browser, name.replace("ada", "Ada"))
    assert answer.status_code == 200, answer.text
    assert (answer.json()["name"], answer.json()["role"]) == (name, "developer")
    assert {"person": name, "role": "developer"} in administrator.get("/v1/admin/members").json()["members"]
    assert browser.post(ENDPOINT, json={"prompt": "a red star"}).status_code == 200
    assert refusal(browser.post("/v1/invitations", json={"role": "viewer"}), 403)

    with new_browser(service) as other:
        assert other.post("/v1/session", json={"name": name, "password": "wrong"}).status_code == 403
        assert other.post("/v1/session", json={"name": name.upper(), "password": PASSWORD}).json()["name"] == name
    assert invite(administrator, browser, name.title()).json()["name"] == name
    assert len(administrator.get("/v1/admin/members").json()["members"]) == 1
    administrator.delete(f"/v1/admin/members/{name}").raise_for_status()
    with new_browser(service) as other:
        answer = other.post("/v1/session", json={"name": name, "password": PASSWORD})
        assert "no member" in refusal(answer, 403)


def test_invitation_cannot_take_the_name_of_another_member(
    administrator: Client, service: Service, browser: httpx2.Client
) -> None:
    """The member of another organization signs in with tokens: the name has its permissions."""
    name = f"boss-{administrator.project}@example.com"
    organization = service.worker.new_organization(credits=1)
    service.worker.new_project(organization)
    service.worker.run(service.worker.organizations.set_member(organization, name, Role.ADMINISTRATOR, "test"))
    assert refusal(invite(administrator, browser, name), 409) == "There is someone of that name"
    assert browser.post("/v1/session", json={"name": name, "password": PASSWORD}).status_code == 403


def test_new_password_signs_out_other_browsers(administrator: Client, service: Service, browser: httpx2.Client) -> None:
    name = f"eva-{administrator.project}@example.com"
    invite(administrator, browser, name).raise_for_status()
    with new_browser(service) as other:
        other.post("/v1/session", json={"name": name, "password": PASSWORD}).raise_for_status()
        wrong = browser.put("/v1/session/password", json={"password": "wrong", "new": "another horse"})
        assert refusal(wrong, 403)
        changed = browser.put("/v1/session/password", json={"password": PASSWORD, "new": "another horse"})
        assert changed.json()["name"] == name
        assert browser.get("/v1/session").json()["signed_in"] is True
        forget_sessions(service)
        assert other.get("/v1/session").json()["signed_in"] is False
        assert other.post("/v1/session", json={"name": name, "password": PASSWORD}).status_code == 403
        assert other.post("/v1/session", json={"name": name, "password": "another horse"}).status_code == 200
    # Someone who forgot the password is invited again.
    with service.client(role=Role.OPERATOR) as operator:
        assert operator.delete(f"/v1/admin/people/{name}").status_code == 204
        assert operator.delete(f"/v1/admin/people/{name}").status_code == 404
    forget_sessions(service)
    assert browser.get("/v1/session").json()["signed_in"] is False
    administrator.delete(f"/v1/admin/members/{name}").raise_for_status()
    assert invite(administrator, browser, name).status_code == 200


def test_parallel_acceptances_of_an_invitation_add_one_member(administrator: Client, service: Service) -> None:
    link = administrator.post("/v1/invitations", json={"role": "viewer"}).json()["link"]
    names = [f"{number}-{administrator.project}@example.com" for number in range(4)]

    def accept(name: str) -> int:
        with new_browser(service) as browser:
            body = {"name": name, "password": PASSWORD}
            return accept_invitation(browser, link.partition("#")[2], body).status_code

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(accept, names)) == [200, 404, 404, 404]
    members = [member["person"] for member in administrator.get("/v1/admin/members").json()["members"]]
    (member,) = set(members) & set(names)
    assert [name for name in names if service.worker.has(f"person:{name}")] == [member]


def test_invitation_of_a_known_person_needs_their_password(administrator: Client, service: Service) -> None:
    name = f"grace-{administrator.project}@example.com"
    with new_browser(service) as browser:
        invite(administrator, browser, name).raise_for_status()
    link = administrator.post("/v1/invitations", json={"role": "viewer"}).json()["link"]
    with new_browser(service) as stranger:
        body = {"name": name, "password": "another one of mine"}
        answer = accept_invitation(stranger, link.partition("#")[2], body)
        assert "another password" in refusal(answer, 409)
        assert stranger.get("/v1/session").json()["signed_in"] is False
        body["password"] = PASSWORD
        assert accept_invitation(stranger, link.partition("#")[2], body).json()["role"] == "developer"


def test_administrator_switches_between_projects_of_the_organization(
    administrator: Client, other_client: Client, browser: httpx2.Client
) -> None:
    other = f"{administrator.project}-other"
    administrator.post("/v1/admin/projects", json={"id": other}).raise_for_status()
    session = browser.post("/v1/session", json={"key": administrator.secret}).json()
    assert other in session["projects"]
    assert browser.put("/v1/session", json={"project": other}).json()["project"] == other
    for project in (other_client.project, "no-such-project"):
        assert refusal(browser.put("/v1/session", json={"project": project}), 404) == "There is no such project"
    task_id = browser.post(ENDPOINT, json={"prompt": "a red star"}).json()["id"]
    assert administrator.get("/v1/tasks").json()["tasks"] == []
    assert [task["id"] for task in browser.get("/v1/tasks").json()["tasks"]] == [task_id]


def test_wrong_passwords_are_limited(administrator: Client, service: Service, browser: httpx2.Client) -> None:
    name = f"eve-{administrator.project}@example.com"
    with new_browser(service) as own:
        invite(administrator, own, name).raise_for_status()
    body = {"name": name, "password": "a guess"}
    answers = [browser.post("/v1/session", json=body) for _ in range(FREE_FAILURES + 1)]
    assert [answer.status_code for answer in answers] == [403] * FREE_FAILURES + [429]
    assert int(answers[-1].headers["retry-after"]) > 0
    # Otherwise the response would reveal the right password.
    assert browser.post("/v1/session", json={"name": name.upper(), "password": PASSWORD}).status_code == 429


def test_local_session_has_the_configured_role(start_service: StartService) -> None:
    service = start_service(accounts=AccountSettings(local_role=Role.OPERATOR))
    with new_browser(service) as browser:
        assert browser.get("/v1/session").json()["local"] is True
        session = browser.post("/v1/session", json={"local": True}).json()
        assert (session["name"], session["role"], session["project"]) == ("local", "operator", "default")
        assert browser.get("/v1/admin/organizations").status_code == 200


def test_wrong_passwords_do_not_lock_out_other_addresses(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the address that the last proxy adds counts, not those that clients claim."""
    service = start_service()
    make_hashing_cheap(service, monkeypatch)
    body = {"name": "nobody@example.com", "password": "a guess"}

    def answer(forwarded_for: str) -> int:
        with new_browser(service) as browser:
            return browser.post("/v1/session", json=body, headers={"x-forwarded-for": forwarded_for}).status_code

    statuses = [answer(f"10.0.0.{number}, 192.0.2.1") for number in range(FREE_FAILURES + 1)]
    assert statuses == [403] * FREE_FAILURES + [429]
    assert answer("192.0.2.2") == 403


def test_invitations_of_a_removed_member_are_void(
    administrator: Client, service: Service, browser: httpx2.Client
) -> None:
    name = f"boss-{administrator.project}@example.com"
    invite(administrator, browser, name, Role.ADMINISTRATOR).raise_for_status()
    link = browser.post("/v1/invitations", json={"role": "administrator"}).raise_for_status().json()["link"]
    assert invite(administrator, browser, name, Role.VIEWER).json()["role"] == "administrator"
    administrator.delete(f"/v1/admin/members/{name}").raise_for_status()
    with new_browser(service) as other:
        body = {"name": f"other-{name}", "password": PASSWORD}
        assert accept_invitation(other, link.partition("#")[2], body).status_code == 404


def test_https_session_needs_the_host_cookie(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(public_url="https://media.example.com"))
    with service.client() as client, new_browser(service) as browser:
        browser.post("/v1/session", json={"key": client.secret}).raise_for_status()
        (secret,) = [cookie.value for cookie in browser.cookies.jar if cookie.name == "__Host-gen_session"]
        browser.cookies.clear()
        for name, signed_in in (("gen_session", False), ("__Host-gen_session", True)):
            session = browser.get("/v1/session", headers={"cookie": f"{name}={secret}"}).json()
            assert session["signed_in"] is signed_in


def test_membership_of_an_unknown_address_needs_an_invitation(
    administrator: Client, service: Service, browser: httpx2.Client
) -> None:
    """Anyone can enrol with an address, so a grant to it could reach a stranger."""
    with service.client(role=Role.ADMINISTRATOR, organization=service.worker.new_organization(credits=1)) as mallory:
        carol = f"{mallory.project}.carol@example.com"
        invite(mallory, browser, carol).raise_for_status()
        for name in (carol, carol.upper(), "new.carol@example.com"):
            put = administrator.put(f"/v1/admin/members/{name}", json={"role": "administrator"})
            assert "invitation" in refusal(put, 409)
        assert browser.put("/v1/session", json={"project": administrator.project}).status_code == 404
        assert administrator.get("/v1/admin/members").json()["members"] == []
        # A member by an invitation of this organization can be granted more.
        invite(administrator, browser, carol, Role.VIEWER).raise_for_status()
        path = f"/v1/admin/members/{carol}"
        assert administrator.put(path, json={"role": "administrator"}).status_code == 200


def test_administrator_cannot_remove_people_of_another_organization(
    administrator: Client, service: Service, browser: httpx2.Client
) -> None:
    alice = f"alice-{administrator.project}@example.com"
    invite(administrator, browser, alice).raise_for_status()
    first = service.worker.new_organization(credits=1)
    with service.client(role=Role.ADMINISTRATOR, organization=first) as other, new_browser(service) as elsewhere:
        assert other.delete(f"/v1/admin/members/{alice}").status_code == 404
        # She accepts an invitation there, and her first session stays in her own organization.
        invite(other, elsewhere, alice).raise_for_status()
        assert elsewhere.get("/v1/session").json()["organization"] == first
        assert browser.get("/v1/session").json()["organization"] == administrator.organization
        assert other.delete(f"/v1/admin/members/{alice}").status_code == 204
        forget_sessions(service)
        assert browser.get("/v1/session").json()["signed_in"] is True
        assert elsewhere.get("/v1/session").json()["signed_in"] is False


def test_later_membership_does_not_change_the_first_organization(
    administrator: Client, service: Service, browser: httpx2.Client
) -> None:
    name = f"zoe-{administrator.project}@example.com"
    invite(administrator, browser, name).raise_for_status()
    worker = service.worker
    earlier = worker.new_organization(credits=1)
    worker.new_project(earlier)
    worker.run(worker.organizations.set_member(earlier, name, Role.ADMINISTRATOR, "test"))
    with new_browser(service) as other:
        session = other.post("/v1/session", json={"name": name, "password": PASSWORD}).json()
        assert session["organization"] == administrator.organization


def test_people_of_an_earlier_release_sign_in_in_any_case(
    administrator: Client, service: Service, browser: httpx2.Client, start_service: StartService
) -> None:
    name = f"Ann-{administrator.project}@Example.com"
    invite(administrator, browser, name).raise_for_status()
    worker, prefix = service.worker, service.settings.redis.prefix
    with Redis.from_url(service.settings.redis_url) as redis:
        redis.rename(f"{prefix}person:{name.lower()}", f"{prefix}person:{name}")
        redis.rename(f"{prefix}members:{administrator.organization}", f"{prefix}members:was")
        redis.hset(f"{prefix}members:{administrator.organization}", name, "developer")
        redis.sadd(f"{prefix}organizations", administrator.organization)
    worker.run(fold_stored_names(worker.redis, prefix))
    with new_browser(service) as other:
        session = other.post("/v1/session", json={"name": name.upper(), "password": PASSWORD}).json()
        assert (session["name"], session["role"]) == (name.lower(), "developer")
