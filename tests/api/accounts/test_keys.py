"""API keys: creation, authentication with its cache, expiry, revocation and audit."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis
from support.clock import Clock
from support.redis_dump import read_keys

from serve_app.accounts import api_key_auth as callers_module
from serve_app.accounts.api_key_auth import CACHE_S, Callers
from serve_app.accounts.audit import AuditLog, IndexFull
from serve_app.accounts.keys import KeyStore, hash_secret
from serve_app.accounts.roles import Role


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(2_000_000_000.0)
    monkeypatch.setattr(callers_module, "time", clock)
    return clock


async def test_key_works_until_it_is_revoked(keys: KeyStore, redis: Redis, prefix: str) -> None:
    before = set(await read_keys(redis, prefix))
    key, secret = await keys.create("laptop", "p", role=Role.VIEWER)
    assert await Callers(redis, prefix).authenticate("gen_never") is None
    assert await redis.exists(f"{prefix}keys:used") == 0
    caller = await Callers(redis, prefix).authenticate(secret)
    assert caller is not None
    assert (caller.id, caller.project.id, caller.role) == (key.id, "p", Role.VIEWER)
    [listed] = await keys.list()
    assert listed.used == pytest.approx(time.time(), abs=300)
    assert replace(listed, used=None) == key == await keys.get(key.id)
    assert await keys.revoke(key.id)
    assert await Callers(redis, prefix).authenticate(secret) is None
    assert await keys.list() == await keys.list("p") == []
    assert not await keys.revoke(key.id)
    remaining = {name.removeprefix(prefix) for name in set(await read_keys(redis, prefix)) - before}
    assert remaining <= {"audit:default", "project:p", "projects:default"}


@pytest.mark.parametrize("max_keys", [1, 3])
async def test_number_of_keys_is_limited_for_parallel_requests(keys: KeyStore, max_keys: int) -> None:
    outcomes = await asyncio.gather(
        *(keys.create(f"{number}", "p", max_keys=max_keys) for number in range(8)), return_exceptions=True
    )
    created = sum(not isinstance(each, IndexFull) for each in outcomes)
    assert len(await keys.list("p")) == created <= max_keys
    for number in range(max_keys - created):
        await keys.create(f"later {number}", "p", max_keys=max_keys)
    with pytest.raises(IndexFull):
        await keys.create("more", "p", max_keys=max_keys)
    await keys.create("without a limit", "p")
    await keys.create("elsewhere", "q", max_keys=max_keys)


async def test_cached_key_works_until_it_expires(keys: KeyStore, redis: Redis, prefix: str, clock: Clock) -> None:
    callers = Callers(redis, prefix)
    key, secret = await keys.create("k", expires=clock.now + 5)
    caller = await callers.authenticate(secret)
    assert caller is not None
    assert caller.expires == key.expires == clock.now + 5
    clock.now += 4.999
    assert await callers.authenticate(secret) == caller
    clock.now += 0.001
    assert await callers.authenticate(secret) is None, "though it is cached"
    assert await Callers(redis, prefix).authenticate(secret) is None
    assert not await keys.is_revoked(secret)


async def test_caller_is_cached_for_ten_seconds(keys: KeyStore, redis: Redis, prefix: str, clock: Clock) -> None:
    callers = Callers(redis, prefix)
    key, secret = await keys.create("k")
    await callers.authenticate(secret)
    await redis.delete(f"{prefix}keys:used")
    clock.now += CACHE_S - 0.001
    await callers.authenticate(secret)
    assert [entry.used for entry in await keys.list()] == [None]
    clock.now += 0.001
    await callers.authenticate(secret)
    assert [entry.used is None for entry in await keys.list()] == [False]
    assert await keys.revoke(key.id)
    clock.now += CACHE_S
    assert await callers.authenticate(secret) is None
    assert await redis.exists(f"{prefix}keys:used") == 0


async def test_audit_log_names_keys_that_exist(keys: KeyStore, audit: AuditLog) -> None:
    key, secret = await keys.create("laptop", "p", role=Role.VIEWER, organization="acme", actor="ada")
    [created] = (await audit.read("acme", 10))[0]
    assert dict(created.details) == {"name": "laptop", "project": "p", "role": "viewer"}
    assert await keys.revoke(key.id, organization="acme", actor="eve")
    assert not await keys.revoke(key.id, organization="acme", actor="eve")
    revoked, created = (await audit.read("acme", 10))[0]
    assert (created.actor, created.action, created.subject) == ("ada", "create key", key.id)
    assert dict(created.details) == {"project": "p", "role": "viewer"}, "names are deleted with their key"
    assert (revoked.actor, revoked.action, revoked.subject) == ("eve", "revoke key", key.id)
    assert not any(form in f"{created}{revoked}" for form in (secret, hash_secret(secret)))


async def test_names_in_the_audit_log_of_0_2_are_hidden(keys: KeyStore, audit: AuditLog, redis: Redis) -> None:
    entry: dict[Any, Any] = {"actor": "ada", "action": "create key", "subject": "gone", "name": "Ada", "role": "viewer"}
    await redis.xadd(audit.stream("acme"), entry)
    [created] = (await audit.read("acme", 10))[0]
    assert dict(created.details) == {"role": "viewer"}


async def test_forgetting_names_does_not_restore_revoked_keys(keys: KeyStore, redis: Redis, prefix: str) -> None:
    kept, _ = await keys.create("Ada", "p")
    revoked, secret = await keys.create("Eve", "p")
    await keys.revoke(revoked.id)
    await redis.sadd(f"{prefix}keys_of:p", revoked.id)  # as if it were revoked at the same time
    await redis.hset(f"{prefix}keys", revoked.id, hash_secret(secret))
    await keys.forget_names("p")
    assert [(key.id, key.name) for key in await keys.list("p")] == [(kept.id, kept.id)]
