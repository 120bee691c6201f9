"""Reads all keys below a prefix, and audit logs."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog


async def read_keys(redis: Redis, prefix: str) -> dict[str, Any]:
    """Returns the decoded value of each key; streams with their ids."""
    keys = [str(key) async for key in redis.scan_iter(f"{prefix}*", count=1000)]
    kinds = redis.pipeline(transaction=False)
    for key in keys:
        kinds.type(key)
    pipe = redis.pipeline(transaction=False)
    for key, kind in zip(keys, await kinds.execute(), strict=True):
        match kind:
            case "zset":
                pipe.zrange(key, 0, -1, withscores=True)
            case "hash":
                pipe.hgetall(key)
            case "list":
                pipe.lrange(key, 0, -1)
            case "set":
                pipe.smembers(key)
            case "stream":
                pipe.xrange(key)
            case _:
                pipe.get(key)
    return dict(zip(keys, await pipe.execute(), strict=True))


async def dump_keys(redis: Redis, prefix: str) -> dict[str, Any]:
    """Returns the serialized value of each key, for comparison."""
    return {name: await redis.dump(name) async for name in redis.scan_iter(f"{prefix}*", count=1000)}


async def audit_lines(audit: AuditLog, organization: str) -> list[tuple[str, str, str, dict[str, str]]]:
    """Returns actor, action, subject and details of each change, oldest first."""
    changes, more = await audit.read(organization, 1000)
    assert more is None
    return [(change.actor, change.action, change.subject, dict(change.details)) for change in reversed(changes)]
