"""Names of people. An e-mail address is one person, however its letters are written.

Stores keep addresses in lower case. Earlier releases kept them as they were written: `fold_stored_names` rewrites those
at the start of the service. Where an organization has one person by two spellings with different roles, the lower-case
one counts, the other stays, and `find_clashes` names it for `gen-serve check`.
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
    """Returns the name as it is stored: an e-mail address in lower case, any other name unchanged."""
    return unicodedata.normalize("NFC", name).lower() if "@" in name else name


async def fold_stored_names(redis: Redis, prefix: str) -> None:
    """Rewrites the names that an earlier release stored in other letters. Idempotent, also after it was cut short."""
    for members, person, role in await _unfolded_members(redis, prefix):
        folded = fold_name(person)
        with suppress(ResponseError):  # there is no such key, or no longer: another process was faster
            await redis.renamenx(f"{prefix}person:{person}", f"{prefix}person:{folded}")
        own, old = f"{prefix}sessions:person:{folded}", f"{prefix}sessions:person:{person}"
        if digests := await cast(Awaitable[set[str]], redis.smembers(old)):
            await cast(Awaitable[int], redis.sadd(own, *digests))
            await redis.delete(old)
        await cast(Awaitable[int], redis.hsetnx(members, folded, role))
        if await cast(Awaitable[str | None], redis.hget(members, folded)) == role:
            await cast(Awaitable[int], redis.hdel(members, person))


async def find_clashes(redis: Redis, prefix: str) -> list[str]:
    """Returns the members, as `organization: name`, whose name another member has in other letters."""
    return [
        f"{members.removeprefix(f'{prefix}members:')}: {person}"
        for members, person, _ in await _unfolded_members(redis, prefix)
    ]


async def _unfolded_members(redis: Redis, prefix: str) -> list[tuple[str, str, str]]:
    """Returns key, person and role of each member whose name is not stored as `fold_name` has it."""
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
