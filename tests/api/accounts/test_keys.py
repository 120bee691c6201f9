"""Keys: made, found by their secret, revoked, remembered for a while by those who look them up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from support.clock import Clock
from support.redis_contents import values

from serve_app.accounts import api_key_auth as callers_module
from serve_app.accounts.api_key_auth import CACHE_S, Callers
from serve_app.accounts.audit import AuditLog, IndexFull
from serve_app.accounts.keys import KeyStore, digest_of
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.roles import PERMISSIONS, Permission, Role


async def test_a_key_works_until_it_is_revoked(redis: Redis, prefix: str) -> None:
    keys = KeyStore(redis, prefix)
    key, secret = await keys.create("laptop", "p")
    assert secret.startswith("gen_")
    caller = await Callers(redis, prefix).authenticate(secret)
    assert caller is not None
    assert (caller.id, caller.project.id, caller.role) == (key.id, "p", Role.DEVELOPER)
    [listed] = await keys.list()
    assert listed.used is not None
    assert replace(listed, used=None) == key
    assert await keys.revoke(key.id)
    assert await Callers(redis, prefix).authenticate(secret) is None
    assert await keys.list() == []
    assert not await keys.revoke(key.id)


async def test_keys_that_come_and_go_leave_nothing(redis: Redis, prefix: str) -> None:
    keys, other = KeyStore(redis, prefix), await KeyStore(redis, prefix).create("stays", "p")
    before = set(await values(redis, prefix))
    for _ in range(3):
        key, _ = await keys.create("goes", "p")
        await keys.revoke(key.id)
    assert set(await values(redis, prefix)) - before <= {f"{prefix}audit:default"}
    assert await keys.list("p") == [other[0]]


@pytest.mark.parametrize("most", [1, 3])
async def test_a_project_has_so_many_keys_at_most_however_many_ask_at_a_time(
    redis: Redis, prefix: str, most: int
) -> None:
    keys = KeyStore(redis, prefix)
    made = await asyncio.gather(
        *(keys.create(f"{number}", "p", most=most) for number in range(8)), return_exceptions=True
    )
    good = [each for each in made if not isinstance(each, BaseException)]
    assert all(isinstance(each, IndexFull) for each in made if isinstance(each, BaseException))
    assert len(await keys.list("p")) == len(good) <= most
    for number in range(most - len(good)):
        await keys.create(f"later {number}", "p", most=most)
    with pytest.raises(IndexFull):
        await keys.create("more", "p", most=most)
    await keys.create("of an operator", "p")
    await keys.create("elsewhere", "q", most=most)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(2_000_000_000.0)
    monkeypatch.setattr(callers_module, "time", clock)
    return clock


async def test_an_unknown_secret_is_nobodys(redis: Redis, prefix: str) -> None:
    callers = Callers(redis, prefix)
    await KeyStore(redis, prefix).create("laptop")
    for secret in ("", "gen_", "gen_never"):
        assert await callers.authenticate(secret) is None
    assert await redis.exists(f"{prefix}keys:used") == 0


@pytest.mark.parametrize("role", Role)
async def test_a_caller_has_the_role_of_its_key(redis: Redis, prefix: str, role: Role) -> None:
    keys = KeyStore(redis, prefix)
    key, secret = await keys.create("k", "p", role=role)
    caller = await Callers(redis, prefix).authenticate(secret)
    assert caller is not None
    assert caller.role is key.role is role
    assert {permission for permission in Permission if caller.may(permission)} == PERMISSIONS[role]
    assert await keys.get(key.id) == key


async def test_a_key_works_until_it_expires(redis: Redis, prefix: str, clock: Clock) -> None:
    keys, callers = KeyStore(redis, prefix), Callers(redis, prefix)
    key, secret = await keys.create("k", expires=clock.now + 5)
    caller = await callers.authenticate(secret)
    assert caller is not None
    assert caller.expires == key.expires == clock.now + 5
    clock.now += 4.999
    assert await callers.authenticate(secret) == caller
    clock.now += 0.001
    # Remembered still, but no longer valid.
    assert await callers.authenticate(secret) is None
    assert await Callers(redis, prefix).authenticate(secret) is None
    [listed] = await keys.list()
    assert replace(listed, used=None) == key
    assert not await keys.is_revoked(secret)


async def test_a_key_that_expired_before_its_first_use_is_refused(redis: Redis, prefix: str, clock: Clock) -> None:
    _, secret = await KeyStore(redis, prefix).create("k", expires=clock.now - 1)
    assert await Callers(redis, prefix).authenticate(secret) is None


async def test_the_last_use_of_a_key_is_told(redis: Redis, prefix: str) -> None:
    keys = KeyStore(redis, prefix)
    used, secret = await keys.create("used")
    unused, _ = await keys.create("unused")
    before, _ = await redis.time()
    await Callers(redis, prefix).authenticate(secret)
    after, _ = await redis.time()
    found = {key.id: key.used for key in await keys.list()}
    assert found[unused.id] is None
    last = found[used.id]
    assert last is not None
    assert before <= last <= after


async def test_a_caller_is_looked_up_once_in_ten_seconds(redis: Redis, prefix: str, clock: Clock) -> None:
    keys, callers = KeyStore(redis, prefix), Callers(redis, prefix)
    _, secret = await keys.create("k")
    await callers.authenticate(secret)
    await redis.delete(f"{prefix}keys:used")
    clock.now += CACHE_S - 0.001
    await callers.authenticate(secret)
    assert [found.used for found in await keys.list()] == [None]
    clock.now += 0.001
    await callers.authenticate(secret)
    assert [found.used is None for found in await keys.list()] == [False]


async def test_a_revocation_is_seen_at_the_latest_when_the_cache_forgets(
    redis: Redis, prefix: str, clock: Clock
) -> None:
    keys, callers = KeyStore(redis, prefix), Callers(redis, prefix)
    key, secret = await keys.create("k")
    assert await callers.authenticate(secret) is not None
    assert await keys.revoke(key.id)
    assert await Callers(redis, prefix).authenticate(secret) is None
    clock.now += CACHE_S
    assert await callers.authenticate(secret) is None
    # Not even its use is remembered.
    assert await redis.exists(f"{prefix}keys:used") == 0


async def test_a_change_of_the_project_is_seen_when_the_cache_forgets(redis: Redis, prefix: str, clock: Clock) -> None:
    callers, projects = Callers(redis, prefix), ProjectStore(redis, prefix)
    await projects.create("p", "acme", "op")
    _, secret = await KeyStore(redis, prefix).create("k", "p")
    await callers.authenticate(secret)
    await projects.change(Project("p", "acme"), {"weight": 3.0}, "op")
    clock.now += CACHE_S
    caller = await callers.authenticate(secret)
    assert caller is not None
    assert caller.project == Project("p", "acme", weight=3.0)


async def test_the_audit_log_of_its_organization_tells_of_a_key(redis: Redis, prefix: str) -> None:
    keys = KeyStore(redis, prefix)
    key, secret = await keys.create("laptop", "p", role=Role.VIEWER, organization="acme", actor="ada")
    assert await keys.revoke(key.id, organization="acme", actor="eve")
    assert not await keys.revoke(key.id, organization="acme", actor="eve")
    revoked, created = (await AuditLog(redis, prefix).read("acme", 10))[0]
    assert (created.actor, created.action, created.subject) == ("ada", "create key", key.id)
    assert dict(created.details) == {"name": "laptop", "project": "p", "role": "viewer"}
    assert (revoked.actor, revoked.action, revoked.subject) == ("eve", "revoke key", key.id)
    assert secret not in f"{created}{revoked}"
    assert digest_of(secret) not in f"{created}{revoked}"
    assert await AuditLog(redis, prefix).read("default", 10) == ([], None)
