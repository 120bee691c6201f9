"""Refusals of a Redis server that answers but runs no commands, and the probe that finds them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

NO_PERMISSION: Final = "NOPERM"
_PROBE: Final = Path(__file__).with_name("probe.lua")
_ANSWER_S: Final = 1.0

_REASONS: Final[Mapping[str, str]] = {
    "MISCONF": "it can't save to its disk, so it takes no writes (MISCONF)",
    "NOREPLICAS": "too few replicas are connected, so it takes no writes (NOREPLICAS)",
    NO_PERMISSION: "its user lacks a permission (NOPERM)",
    "MASTERDOWN": "it is a replica that lost its primary (MASTERDOWN)",
    "CLUSTERDOWN": "its cluster is down (CLUSTERDOWN)",
    "TRYAGAIN": "its cluster is moving keys (TRYAGAIN)",
    "BUSY": "it is busy with a script (BUSY)",
}
_CODE: Final = re.compile(rf"({'|'.join(_REASONS)})\b")
_ACL_IN_SCRIPT: Final = "ACL failure in script"
"""Prefix of the error of a script that the user may call, but not with the commands in it."""


class StoreRefused(RedisError):
    """The server answered that it does not run the command. `code` is a key of `_REASONS`."""

    def __init__(self, code: str, answer: str) -> None:
        """`answer` is the server's, for operators only: it may name its user, keys and commands."""
        super().__init__(answer)
        self.code = code


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Raises StoreRefused in place of redis-py's errors for refusals."""
    try:
        yield
    except ResponseError as problem:
        # A pipeline prepends its command to the server's answer.
        answer = str(problem).rpartition("caused error: ")[2]
        code = NO_PERMISSION if answer.removeprefix("ERR ").startswith(_ACL_IN_SCRIPT) else problem.status_code
        if code not in _REASONS:
            match = _CODE.match(answer)
            code = match and match[1]
        if code is None:
            raise
        raise StoreRefused(code, answer) from problem


async def probe(redis: Redis, prefix: str) -> list[str]:
    """Runs the commands of the service's scripts. Returns the server's errors about missing permissions.

    Raises RedisError if the server takes no writes.
    """
    script = redis.register_script(_PROBE.read_text())
    return await cast(Awaitable[list[str]], script(keys=[prefix], args=[prefix]))


async def probe_subscription(redis: Redis, prefix: str) -> list[str]:
    """Subscribes as the service does. Returns errors like `probe`."""
    async with redis.pubsub() as pubsub:
        try:
            await pubsub.subscribe(f"{prefix}done")
            await pubsub.get_message(timeout=_ANSWER_S)
        except NoPermissionError as problem:
            return [f"{problem} (SUBSCRIBE)"]
    return []


class MissingPermissions(ValueError):
    """The server's user lacks permissions that the service needs."""

    def __init__(self, missing: list[str], prefix: str) -> None:
        self.problem = f"the user of redis.url lacks permissions: {'; '.join(dict.fromkeys(missing))}"
        self.remedy = f"ACL SETUSER … ~{prefix}* &{prefix}* +@all -@dangerous +info"
        super().__init__(f"{self.problem}. Grant them: {self.remedy}")


async def check_permissions(redis: Redis, prefix: str) -> None:
    """Raises MissingPermissions, or RedisError if the server takes no writes."""
    if missing := await probe(redis, prefix) + await probe_subscription(redis, prefix):
        raise MissingPermissions(missing, prefix)


def describe_store_problem(problem: BaseException) -> str | None:
    """Returns why the server refuses, without internals; None if it is out of reach."""
    match problem:
        case StoreRefused():
            return _REASONS[problem.code]
        case AuthenticationError():
            return "it refuses the service's user name or password"
        case ReadOnlyError():
            return "it is a read-only replica (READONLY)"
        case OutOfMemoryError():
            return "its memory is used up (OOM)"
        case BusyLoadingError():
            return "it is loading its data (LOADING)"
        case _:
            return None
