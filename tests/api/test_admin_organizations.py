"""Organizations, which operators create, and their members."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.http_client import Client, refusal
from support.http_service import Service, running
from support.promises import promise

from serve_app.accounts.members import PersonStore
from serve_app.accounts.roles import Role
from serve_app.accounts.settings import AccountSettings, IssuerSettings

PATH = "/v1/admin/organizations"


@pytest.fixture
def name() -> str:
    return f"acme-{uuid.uuid4().hex}"


def test_new_organization_has_no_credits_and_no_projects(operator: Client, name: str) -> None:
    response = operator.post(PATH, json={"id": name, "name": "Acme, Inc."})
    assert response.status_code == 201
    organization = response.json()
    assert organization.pop("created") == pytest.approx(time.time(), abs=60)
    assert organization == {"id": name, "name": "Acme, Inc.", "safety": {}, "ceilings": {}}
    assert operator.get(f"{PATH}/{name}").json() == response.json()
    assert response.json() in operator.get(PATH).json()["organizations"]
    balance = operator.get("/v1/admin/credits", params={"organization": name}).json()
    assert balance == {"credits": 0, "held": 0, "spent": 0, "granted": 0}
    assert operator.get("/v1/admin/projects", params={"organization": name}).json() == {"projects": []}


def test_viewer_sees_the_own_organization(service: Service, organization: str) -> None:
    with service.client(role=Role.VIEWER, organization=organization) as member:
        response = member.get(f"{PATH}/{organization}")
    assert (response.status_code, response.json()["id"]) == (200, organization)


def test_organization_id_is_unique(operator: Client, service: Service, name: str) -> None:
    operator.post(PATH, json={"id": name, "name": "first"})
    for existing_id in (name, "default"):
        with service.assert_unchanged():
            response = operator.post(PATH, json={"id": existing_id, "name": "second"})
        assert refusal(response, 409) == "There is an organization of that id"
    assert operator.get(f"{PATH}/{name}").json()["name"] == "first"


MEMBERS = "/v1/admin/members"
ROLES = ["administrator", "developer", "billing_manager", "viewer"]


@pytest.fixture(scope="module")
def issuer_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service where an issuer vouches for names, so administrators may add members by name."""
    issuer = IssuerSettings(issuer="https://login.test", jwks_url="https://login.test/jwks", audience="media")
    accounts = AccountSettings(issuers=[issuer], max_members=2)
    with running(tmp_path_factory.mktemp("issuer"), redis_url, repository, accounts=accounts) as service:
        yield service


@pytest.fixture
def granting(issuer_service: Service) -> Iterator[Client]:
    """An administrator of a new organization of that service."""
    organization = issuer_service.worker.new_organization(credits=0)
    with issuer_service.client(role=Role.ADMINISTRATOR, organization=organization) as client:
        yield client


def list_members(client: Client) -> dict[str, str]:
    return {member["person"]: member["role"] for member in client.get(MEMBERS).json()["members"]}


@promise("Authentication", "Roles in an organization: Administrator, Developer, Billing Manager, Viewer.")
def test_member_has_one_role_until_removed(granting: Client) -> None:
    for role in ROLES:
        response = granting.put(f"{MEMBERS}/ann", json={"role": role})
        assert (response.status_code, response.json()) == (200, {"person": "ann", "role": role})
        assert list_members(granting) == {"ann": role}
    deletion = granting.delete(f"{MEMBERS}/ann")
    assert (deletion.status_code, deletion.content) == (204, b"")
    assert list_members(granting) == {}


def test_member_may_have_any_subject_of_a_token(granting: Client) -> None:
    for person in ("ann@example.org", "auth0|5f7c8ec7", "a b", "\N{GREEK SMALL LETTER OMEGA}", "100%"):
        quoted = "".join(f"%{byte:02x}" for byte in person.encode())
        assert granting.put(f"{MEMBERS}/{quoted}", json={"role": "viewer"}).json()["person"] == person
        assert list_members(granting) == {person: "viewer"}
        assert granting.delete(f"{MEMBERS}/{quoted}").status_code == 204


def test_number_of_members_is_limited_except_for_operators(issuer_service: Service, granting: Client) -> None:
    for person in ("ada", "bob"):
        assert granting.put(f"{MEMBERS}/{person}", json={"role": "viewer"}).status_code == 200
    with issuer_service.assert_unchanged():
        response = granting.put(f"{MEMBERS}/cleo", json={"role": "viewer"})
        assert refusal(response, 429) == "Too many members: an organization may have 2; remove one first"
    assert granting.put(f"{MEMBERS}/bob", json={"role": "developer"}).status_code == 200
    with issuer_service.client(role=Role.OPERATOR) as operator:
        place = {"organization": granting.organization}
        assert operator.put(f"{MEMBERS}/cleo", json={"role": "viewer"}, params=place).status_code == 200


def test_person_with_a_password_is_added_by_invitation_only(issuer_service: Service, granting: Client) -> None:
    people = PersonStore(issuer_service.worker.redis, issuer_service.settings.redis.prefix)
    issuer_service.worker.run(people.create_user("eve@example.com", "a long password"))
    assert "invitation" in refusal(granting.put(f"{MEMBERS}/Eve@example.com", json={"role": "viewer"}), 409)


def test_revoked_key_cannot_change_members_while_it_is_cached(administrator: Client, service: Service) -> None:
    worker = service.worker
    worker.run(worker.organizations.set_member(administrator.organization, "eve", Role.DEVELOPER, "test"))
    secret = worker.new_key(administrator.project, Role.ADMINISTRATOR, administrator.organization)
    with Client(service.base_url, administrator.project, secret, {}, administrator.organization) as other:
        assert other.put(f"{MEMBERS}/eve", json={"role": "viewer"}).status_code == 200
        keys = administrator.get("/v1/admin/keys").json()["keys"]
        (key_id,) = [key["id"] for key in keys if secret.startswith(key["hint"].rstrip("."))]
        assert administrator.delete(f"/v1/admin/keys/{key_id}").status_code == 204
        assert other.put(f"{MEMBERS}/eve", json={"role": "administrator"}).status_code == 403
    assert list_members(administrator) == {"eve": "viewer"}
