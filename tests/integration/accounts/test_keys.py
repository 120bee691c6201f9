from __future__ import annotations

from dataclasses import replace

from redis.asyncio import Redis

from serve_app.accounts.callers import Callers
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.roles import Role


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


async def test_a_revoked_key_is_remembered_as_such(redis: Redis, prefix: str) -> None:
    keys = KeyStore(redis, prefix)
    key, secret = await keys.create("local")
    assert not await keys.is_revoked(secret)
    await keys.revoke(key.id)
    assert await keys.is_revoked(secret)
    assert not await keys.is_revoked("gen_never")


async def test_secrets_are_nowhere_in_the_store(redis: Redis, prefix: str) -> None:
    _, secret = await KeyStore(redis, prefix).create("laptop")
    async for name in redis.scan_iter(f"{prefix}*"):
        assert secret not in name
        if await redis.type(name) == "hash":
            assert secret not in str(await redis.hgetall(name))  # type: ignore[misc]
