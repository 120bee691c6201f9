"""Organizations: made once, their members, what safety is approved for them, and to what they are held."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from support.redis_contents import audit_lines as lines
from support.redis_contents import contents

from serve_app.accounts.api_key_auth import Caller, Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.organizations import Name, Organization, OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import Role


@pytest.fixture
def organizations(redis: Redis, prefix: str) -> OrganizationStore:
    return OrganizationStore(redis, prefix)


async def test_an_organization_is_made_once(
    organizations: OrganizationStore, audit: AuditLog, redis: Redis, prefix: str
) -> None:
    assert await organizations.get("acme") is None
    assert await organizations.create("acme", "Acme & Sons", "op")
    made = await organizations.get("acme")
    assert made is not None
    assert (made.id, made.name, dict(made.safety)) == ("acme", "Acme & Sons", {})
    assert made.created > 0
    before = await contents(redis, prefix)
    assert not await organizations.create("acme", "Another", "op")
    assert await contents(redis, prefix) == before
    assert await lines(audit, "acme") == [("op", "create organization", "acme", {})]


async def test_organizations_are_listed_by_id_the_default_one_always(organizations: OrganizationStore) -> None:
    assert await organizations.list() == [Organization("default", "Default", 0.0, {})]
    for organization_id in ("zeta", "acme"):
        await organizations.create(organization_id, organization_id.title(), "op")
    assert [found.id for found in await organizations.list()] == ["acme", "default", "zeta"]


async def test_the_default_organization_can_be_given_a_name_once(organizations: OrganizationStore) -> None:
    assert await organizations.create("default", "Ours", "op")
    assert not await organizations.create("default", "Theirs", "op")
    [found] = await organizations.list()
    assert (found.id, found.name) == ("default", "Ours")


async def test_members_have_one_role_each(organizations: OrganizationStore, audit: AuditLog) -> None:
    assert await organizations.members("acme") == {}
    assert await organizations.role_of("acme", "ada") is None
    await organizations.put_member("acme", "eve", Role.VIEWER, "op")
    await organizations.put_member("acme", "ada", Role.DEVELOPER, "op")
    await organizations.put_member("acme", "ada", Role.ADMINISTRATOR, "eve")
    assert list((await organizations.members("acme")).items()) == [("ada", Role.ADMINISTRATOR), ("eve", Role.VIEWER)]
    assert await organizations.role_of("acme", "ada") is Role.ADMINISTRATOR
    assert await organizations.role_of("other", "ada") is None
    assert await organizations.remove_member("acme", "ada", "op")
    assert not await organizations.remove_member("acme", "ada", "op")
    assert await organizations.members("acme") == {"eve": Role.VIEWER}
    assert await lines(audit, "acme") == [
        ("op", "set member", "eve", {"role": "viewer"}),
        ("op", "set member", "ada", {"role": "developer"}),
        ("eve", "set member", "ada", {"role": "administrator"}),
        ("op", "remove member", "ada", {}),
    ]


async def test_approved_safety_reaches_the_callers_of_the_organization(
    organizations: OrganizationStore, audit: AuditLog, redis: Redis, prefix: str
) -> None:
    await organizations.create("acme", "Acme", "op")
    await ProjectStore(redis, prefix).create("p", "acme", "op")
    _, secret = await KeyStore(redis, prefix).create("k", "p")
    _, elsewhere = await KeyStore(redis, prefix).create("k", "q")

    async def caller(secret: str) -> Caller:
        # A new one each time: what it remembers is tested with the keys.
        found = await Callers(redis, prefix).authenticate(secret)
        assert found is not None
        return found

    assert dict((await caller(secret)).safety) == {}
    await organizations.approve("acme", "gen-a", 6, "op")
    await organizations.approve("acme", "gen-b", 0, "op")
    acting = await caller(secret)
    assert acting.organization == "acme"
    assert dict(acting.safety) == {"gen-a": 6, "gen-b": 0}
    assert dict((await caller(elsewhere)).safety) == {}
    await organizations.approve("acme", "gen-a", None, "op")
    assert dict((await caller(secret)).safety) == {"gen-b": 0}
    found = await organizations.get("acme")
    assert found is not None
    assert (found.name, dict(found.safety)) == ("Acme", {"gen-b": 0})
    assert await lines(audit, "acme") == [
        ("op", "create organization", "acme", {}),
        ("op", "create project", "p", {}),
        ("op", "approve safety", "gen-a", {"tolerance": "6"}),
        ("op", "approve safety", "gen-b", {"tolerance": "0"}),
        ("op", "approve safety", "gen-a", {"tolerance": ""}),
    ]


async def test_levels_of_an_organization_that_is_not_there(
    organizations: OrganizationStore, redis: Redis, prefix: str
) -> None:
    before = await contents(redis, prefix)
    for change in (organizations.cap("none", "hate", 3, "op"), organizations.approve("none", "gen-a", None, "op")):
        with pytest.raises(LookupError):
            await change
    assert await contents(redis, prefix) == before


@pytest.mark.parametrize("tolerance", [2, None])
async def test_a_level_that_was_set_is_the_same_again(organizations: OrganizationStore, tolerance: int | None) -> None:
    for _ in range(2):
        await organizations.cap("default", "hate", tolerance, "op")
    found = await organizations.get("default")
    assert found is not None
    assert dict(found.ceilings) == ({} if tolerance is None else {"hate": tolerance})


async def test_the_audit_log_is_read_in_pages_newest_first(organizations: OrganizationStore, audit: AuditLog) -> None:
    for n in range(5):
        await organizations.put_member("acme", f"person-{n}", Role.VIEWER, "op")
    pages: list[list[str]] = []
    before: str | None = None
    while True:
        changes, before = await audit.read("acme", 2, before)
        pages.append([change.subject for change in changes])
        if before is None:
            break
        await organizations.put_member("acme", "later", Role.VIEWER, "op")
    assert pages == [["person-4", "person-3"], ["person-2", "person-1"], ["person-0"]]
    assert await audit.read("other", 2) == ([], None)


@pytest.mark.parametrize("name", ["a", "A-1._x", "0" * 64])
def test_names_that_can_stand_in_keys_and_addresses_are_taken(name: str) -> None:
    assert TypeAdapter(Name).validate_python(name) == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "a:b", "a/b", "a b", "a|b", "ä", "a\n", "0" * 65])
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)


async def test_many_organizations_and_projects_are_read_in_few_round_trips(
    organizations: OrganizationStore, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects = ProjectStore(redis, prefix)
    for n in range(20):
        await organizations.create(f"o{n}", "x", "op")
        await projects.create(f"p{n}", "o1", "op")
    await organizations.put_member("o7", "ann", Role.VIEWER, "op")
    sent: list[object] = []
    send = AbstractConnection.send_packed_command

    async def counted(self: AbstractConnection, command: Any, **options: Any) -> None:
        sent.append(command)
        await send(self, command, **options)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
    assert len(await organizations.list()) == 21
    assert await organizations.of_person("ann") == ["o7"]
    assert len(await projects.list("o1")) == 20
    assert len(sent) == 6
