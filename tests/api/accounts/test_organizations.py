"""Organizations, their members, safety levels and audit log."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis
from support.redis_dump import audit_lines as lines
from support.redis_dump import dump_keys

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.organizations import Name, Organization, OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import Role


async def test_organizations_are_listed_by_id_with_the_default_one(
    organizations: OrganizationStore, audit: AuditLog
) -> None:
    assert await organizations.list() == [Organization("default", "Default", 0.0, {})]
    for organization_id in ("zeta", "acme", "default"):
        assert await organizations.create(organization_id, organization_id.title(), "op")
    assert not await organizations.create("default", "Theirs", "op")
    assert [organization.id for organization in await organizations.list()] == ["acme", "default", "zeta"]
    assert await lines(audit, "acme") == [("op", "create organization", "acme", {})]
    assert await organizations.get("none") is None


async def test_member_has_the_latest_role(organizations: OrganizationStore, audit: AuditLog) -> None:
    await organizations.create("acme", "Acme", "op")
    await organizations.set_member("acme", "eve", Role.VIEWER, "op")
    await organizations.set_member("acme", "ada", Role.DEVELOPER, "op")
    await organizations.set_member("acme", "ada", Role.ADMINISTRATOR, "eve")
    assert list((await organizations.members("acme")).items()) == [("ada", Role.ADMINISTRATOR), ("eve", Role.VIEWER)]
    assert await organizations.get_role("acme", "ada") is Role.ADMINISTRATOR
    assert await organizations.get_role("other", "ada") is None
    assert await organizations.list_for_person("ada") == ["acme"]
    assert await organizations.remove_member("acme", "ada", "op")
    assert not await organizations.remove_member("acme", "ada", "op")
    assert await organizations.members("acme") == {"eve": Role.VIEWER}
    assert (await lines(audit, "acme"))[1:] == [
        ("op", "set member", "eve", {"role": "viewer"}),
        ("op", "set member", "ada", {"role": "developer"}),
        ("eve", "set member", "ada", {"role": "administrator"}),
        ("op", "remove member", "ada", {}),
    ]


async def test_approved_safety_levels_reach_callers_of_the_organization(
    organizations: OrganizationStore, projects: ProjectStore, keys: KeyStore, audit: AuditLog, redis: Redis, prefix: str
) -> None:
    await organizations.create("acme", "Acme", "op")
    await projects.create("p", "acme", "op")
    _, secret = await keys.create("k", "p")
    _, elsewhere = await keys.create("k", "q")

    async def safety(secret: str) -> dict[str, int]:
        caller = await Callers(redis, prefix).authenticate(secret)
        assert caller is not None
        return dict(caller.safety)

    await organizations.approve("acme", "gen-a", 6, "op")
    await organizations.approve("acme", "gen-b", 0, "op")
    assert await safety(secret) == {"gen-a": 6, "gen-b": 0}
    assert await safety(elsewhere) == {}
    await organizations.approve("acme", "gen-a", None, "op")
    assert await safety(secret) == {"gen-b": 0}
    assert [line for line in await lines(audit, "acme") if line[1] == "approve safety"] == [
        ("op", "approve safety", "gen-a", {"tolerance": "6"}),
        ("op", "approve safety", "gen-b", {"tolerance": "0"}),
        ("op", "approve safety", "gen-a", {"tolerance": ""}),
    ]


async def test_levels_are_set_for_existing_organizations_only(
    organizations: OrganizationStore, redis: Redis, prefix: str
) -> None:
    for tolerance, ceilings in ((2, {"hate": 2}), (None, {})):
        await organizations.cap("default", "hate", tolerance, "op")
        organization = await organizations.get("default")
        assert organization is not None
        assert dict(organization.ceilings) == ceilings
    before = await dump_keys(redis, prefix)
    for change in (organizations.cap("none", "hate", 3, "op"), organizations.approve("none", "gen-a", None, "op")):
        with pytest.raises(LookupError):
            await change
    assert await dump_keys(redis, prefix) == before


async def test_audit_log_has_pages_newest_first(organizations: OrganizationStore, audit: AuditLog) -> None:
    for n in range(3):
        await organizations.set_member("acme", f"person-{n}", Role.VIEWER, "op")
    first, before = await audit.read("acme", 2)
    await organizations.set_member("acme", "later", Role.VIEWER, "op")
    second, last = await audit.read("acme", 2, before)
    assert [change.subject for change in (*first, *second)] == ["person-2", "person-1", "person-0"]
    assert last is None
    assert await audit.read("other", 2) == ([], None)


def test_names_are_safe_in_keys_and_urls() -> None:
    for name in ("a", "A-1._x", "0" * 64):
        TypeAdapter(Name).validate_python(name)
    for name in ("", "-a", ".a", "a:b", "a/b", "a b", "ä", "a\n", "0" * 65):
        with pytest.raises(ValidationError):
            TypeAdapter(Name).validate_python(name)
