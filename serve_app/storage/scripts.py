"""Lua scripts: loaded from files, each with the code it shares in front.

Whatever ends work, or makes room, may run when the server's memory is used up (`flags=allow-oom`); what begins work may
not. Every script names its prefix as a key: a prefix with a hash tag (`{gen}:`) keeps all keys of a service in one
slot, so that a server in cluster mode takes them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import TimeoutError

PRELUDE: Final = Path(__file__).with_name("prelude.lua")
"""Names of keys, the time and helpers; every script begins with it."""


def concat_scripts(*files: Path) -> str:
    """The texts of these files, one after the other. The flags of the last one, `#!lua flags=…`, are those of all."""
    *preludes, own = (file.read_text() for file in files)
    first, newline, rest = own.partition("\n")
    return "".join((first, newline, *preludes, rest) if first.startswith("#!") else (*preludes, own))


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
        self._scripts: dict[str, AsyncScript] = {}

    async def run(self, name: str, args: Sequence[Any]) -> Any:
        """The reply to the script `name`, whose ARGV is the prefix and then `args`."""
        return await self._script(name)(keys=[self._prefix], args=[self._prefix, *args])

    async def call(self, name: str, queue: str = "", *, replicated: bool = False, **arguments: Any) -> Any:
        """Returns the decoded answer of a script that takes one JSON object. Arguments that are None are left out.

        A `replicated` call raises TimeoutError when the replicas have not followed in time.
        """
        given = {argument: value for argument, value in arguments.items() if value is not None}
        run = self.run_replicated if replicated and self._replication.replicas else self.run
        answer = await run(name, [queue, json.dumps(given, separators=(",", ":"))])
        return None if answer is None else json.loads(answer)

    async def run_replicated(self, name: str, args: Sequence[Any]) -> Any:
        """Does as `run`, and waits for the replicas. Raises TimeoutError when they have not followed in time."""
        replication = self._replication
        async with self._redis.pipeline(transaction=False) as pipe:
            await self._script(name)(keys=[self._prefix], args=[self._prefix, *args], client=pipe)
            # WAIT is for the last write of its connection: a step that was taken before writes nothing.
            pipe.incr(f"{self._prefix}replicated")
            pipe.execute_command("WAIT", replication.replicas, milliseconds(replication.limit_s))
            reply, _, have_it = await pipe.execute()
        if have_it < replication.replicas:
            raise TimeoutError(f"{have_it} of {replication.replicas} replicas have it")
        return reply

    def _script(self, name: str) -> AsyncScript:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._redis.register_script(self._source(name))
        return script


_READ_EVERY_S: Final = 10.0
_SLOW_S: Final = 0.25
"""A reading that took longer says when Redis answered no better than to this."""


class RedisClock:
    """Reads `TIME` now and then, and counts on from there: a script can carry its deadline.

    What this process takes for the time is ahead of Redis' own by no more than a reading took, and never behind it: but
    for the first reading, if that was slow. Then it is behind by that, until one is fast.
    """

    def __init__(self, redis: Redis, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._monotonic = monotonic
        self._ahead_s: float | None = None
        self._read_at = float("-inf")

    async def now(self) -> float:
        """Epoch seconds of the server. Raises RedisError when it has to be read and can't be."""
        if self._ahead_s is None or self._monotonic() - self._read_at > _READ_EVERY_S:
            await self._read()
        assert self._ahead_s is not None
        return self._monotonic() + self._ahead_s

    def forget(self) -> None:
        """Has the time read again: another server may answer by now, after a failover."""
        self._ahead_s = None

    async def _read(self) -> None:
        sent_at = self._monotonic()
        seconds, micros = await cast(Awaitable[tuple[int, int]], self._redis.time())
        received_at, server = self._monotonic(), int(seconds) + int(micros) / 1e6
        if received_at - sent_at < _SLOW_S:
            self._ahead_s, self._read_at = server - sent_at, received_at
        elif self._ahead_s is None:
            self._ahead_s = server - received_at
