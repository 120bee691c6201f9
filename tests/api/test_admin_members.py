"""Members of an organization, and its audit log."""

from __future__ import annotations

from typing import Any

import pytest
from support.client import Client, problems, refusal
from support.http_service import Service, StartService
from support.promises import promise

from serve_app.accounts.roles import Role
from serve_app.accounts.settings import AccountSettings

PATH = "/v1/admin/members"
ROLES = ["administrator", "developer", "billing_manager", "viewer"]


def members(client: Client) -> dict[str, str]:
    return {member["person"]: member["role"] for member in client.get(PATH).json()["members"]}


@promise("Authentication", "Roles in an organization: Administrator, Developer, Billing Manager, Viewer.")
@pytest.mark.parametrize("role", ROLES)
def test_a_member_comes_changes_and_goes(administrator: Client, role: str) -> None:
    response = administrator.put(f"{PATH}/ann", json={"role": "viewer"})
    assert (response.status_code, response.json()) == (200, {"person": "ann", "role": "viewer"})
    assert administrator.put(f"{PATH}/ann", json={"role": role}).json() == {"person": "ann", "role": role}
    assert members(administrator) == {"ann": role}
    gone = administrator.delete(f"{PATH}/ann")
    assert (gone.status_code, gone.content) == (204, b"")
    assert members(administrator) == {}


@pytest.mark.parametrize("person", ["ann@example.org", "auth0|5f7c8ec7", "a b", "\N{GREEK SMALL LETTER OMEGA}", "100%"])
def test_people_are_called_as_tokens_name_them(administrator: Client, person: str) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in person.encode())
    assert administrator.put(f"{PATH}/{quoted}", json={"role": "viewer"}).json()["person"] == person
    assert members(administrator) == {person: "viewer"}
    assert administrator.delete(f"{PATH}/{quoted}").status_code == 204


@pytest.mark.parametrize("body", [{}, {"role": "operator"}, {"role": "king"}, {"role": None}])
def test_what_no_member_can_be(administrator: Client, service: Service, body: dict[str, Any]) -> None:
    with service.unchanged():
        response = administrator.put(f"{PATH}/ann", json=body)
        assert [loc for loc, _ in problems(response)] == [["body", "role"]]


def test_an_organization_has_so_many_members(start_service: StartService) -> None:
    service = start_service(accounts=AccountSettings(max_members=2))
    organization = service.worker.new_organization(credits=0)
    with (
        service.client(role=Role.ADMINISTRATOR, organization=organization) as administrator,
        service.client(role=Role.OPERATOR) as operator,
    ):
        for person in ("ada", "bob"):
            assert administrator.put(f"{PATH}/{person}", json={"role": "viewer"}).status_code == 200
        with service.unchanged():
            response = administrator.put(f"{PATH}/cleo", json={"role": "viewer"})
            wanted = "Too many members: an organization may have 2; take one out first"
            assert refusal(response, 429) == wanted
        assert administrator.put(f"{PATH}/bob", json={"role": "developer"}).status_code == 200
        by_operator = operator.put(f"{PATH}/cleo", json={"role": "viewer"}, params={"organization": organization})
        assert by_operator.status_code == 200


def test_who_is_removed_cannot_let_themselves_in_again(administrator: Client, service: Service) -> None:
    """Though a service remembers for some seconds who may what."""
    secret = service.worker.new_key(administrator.project, Role.ADMINISTRATOR, administrator.organization)
    with Client(service.base_url, administrator.project, secret, {}, administrator.organization) as other:
        assert other.put(f"{PATH}/eve", json={"role": "viewer"}).status_code == 200
        (key,) = [
            key
            for key in administrator.get("/v1/admin/keys").json()["keys"]
            if secret.startswith(key["hint"].rstrip("."))
        ]
        assert administrator.delete(f"/v1/admin/keys/{key['id']}").status_code == 204
        assert other.put(f"{PATH}/eve", json={"role": "administrator"}).status_code == 403
    assert members(administrator) == {"eve": "viewer"}
