"""Atomic steps: Lua scripts from files, each with what it shares with others in front.

Whatever ends work, or makes room, may run when the server's memory is used up (`flags=allow-oom`); what begins work may
not. Every script names its prefix as a key: a prefix with a hash tag (`{gen}:`) keeps all keys of a service in one
slot, so that a server in cluster mode takes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import TimeoutError

PRELUDE: Final = Path(__file__).with_name("prelude.lua")
"""Names of keys, the time and the rate limit; a script begins with it."""


def joined(*files: Path) -> str:
    """The texts of these files, one after the other. The flags of the last one, `#!lua flags=…`, are those of all."""
    *shared, own = (file.read_text() for file in files)
    first, newline, rest = own.partition("\n")
    return "".join((first, newline, *shared, rest) if first.startswith("#!") else (*shared, own))


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def flat(fields: Mapping[str, Any]) -> list[Any]:
    """As `HSET` takes them."""
    return [part for pair in fields.items() for part in pair]


def call_id() -> str:
    """Names one call of a script, however often the client library sends it."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Replication:
    """How many replicas must have a step before it counts as done, and how long they may take."""

    replicas: int = 0
    limit_s: float = 1.0


UNREPLICATED: Final = Replication()


class Scripts:
    """The scripts of one room, each sent to the server once and then called by its digest."""

    def __init__(
        self, redis: Redis, prefix: str, source: Callable[[str], str], replication: Replication = UNREPLICATED
    ) -> None:
        """`source` gives a script's text by its name; it finds `prefix` in ARGV[1]."""
        self._redis = redis
        self._prefix = prefix
        self._source = source
        self._replication = replication
        self._registered: dict[str, AsyncScript] = {}

    async def run(self, name: str, args: Sequence[Any]) -> Any:
        """The reply to the script `name`, whose ARGV is the prefix and then `args`."""
        return await self._script(name)(keys=[self._prefix], args=[self._prefix, *args])

    async def run_replicated(self, name: str, args: Sequence[Any]) -> Any:
        """The same, once the replicas have it that are asked for. Raises TimeoutError when they have not in time."""
        wanted = self._replication
        if not wanted.replicas:
            return await self.run(name, args)
        async with self._redis.pipeline(transaction=False) as pipe:
            await self._script(name)(keys=[self._prefix], args=[self._prefix, *args], client=pipe)
            # WAIT is for the last write of its connection: a step that was taken before writes nothing.
            pipe.incr(f"{self._prefix}replicated")
            pipe.execute_command("WAIT", wanted.replicas, milliseconds(wanted.limit_s))
            reply, _, have_it = await pipe.execute()
        if have_it < wanted.replicas:
            raise TimeoutError(f"{have_it} of {wanted.replicas} replicas have it")
        return reply

    def _script(self, name: str) -> AsyncScript:
        script = self._registered.get(name)
        if script is None:
            script = self._registered[name] = self._redis.register_script(self._source(name))
        return script
