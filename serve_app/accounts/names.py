"""Names of people. E-mail addresses are case-insensitive.

Stores keep addresses in lower case. Earlier releases kept their case: `fold_stored_names` rewrites those when the
service starts. If an organization has a person in two spellings with different roles, the lower-case one applies, the
other stays, and `find_clashes` lists it for `gen-serve check`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable
from contextlib import suppress
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from serve_app.accounts.credits import DEFAULT_ORGANIZATION


def fold_name(name: str) -> str:
    """Returns the stored form of a name: an e-mail address in lower case, any other name unchanged."""
    return unicodedata.normalize("NFC", name).lower() if "@" in name else name


async def fold_stored_names(redis: Redis, prefix: str) -> None:
    """Rewrites names that an earlier release stored in mixed case. Idempotent, even after an interruption."""
    for members, person, role in await _unfolded_members(redis, prefix):
        folded = fold_name(person)
        with suppress(ResponseError):  # there is no such key, or another process renamed it
            await redis.renamenx(f"{prefix}person:{person}", f"{prefix}person:{folded}")
        own, old = f"{prefix}sessions:person:{folded}", f"{prefix}sessions:person:{person}"
        if digests := await cast(Awaitable[set[str]], redis.smembers(old)):
            await cast(Awaitable[int], redis.sadd(own, *digests))
            await redis.delete(old)
        await cast(Awaitable[int], redis.hsetnx(members, folded, role))
        if await cast(Awaitable[str | None], redis.hget(members, folded)) == role:
            await cast(Awaitable[int], redis.hdel(members, person))


async def find_clashes(redis: Redis, prefix: str) -> list[str]:
    """Returns members, as `organization: name`, whose name differs from another member's only in case."""
    return [
        f"{members.removeprefix(f'{prefix}members:')}: {person}"
        for members, person, _ in await _unfolded_members(redis, prefix)
    ]


async def _unfolded_members(redis: Redis, prefix: str) -> list[tuple[str, str, str]]:
    """Returns members key, person and role for each stored name that `fold_name` changes."""
    organizations = await cast(Awaitable[set[str]], redis.smembers(f"{prefix}organizations"))
    keys = [f"{prefix}members:{organization}" for organization in sorted(organizations | {DEFAULT_ORGANIZATION})]
    reads = redis.pipeline(transaction=False)
    for key in keys:
        reads.hgetall(key)
    return [
        (key, person, role)
        for key, members in zip(keys, await reads.execute(), strict=True)
        for person, role in sorted(members.items())
        if fold_name(person) != person
    ]
