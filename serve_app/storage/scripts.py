"""Lua scripts, loaded from files and concatenated with the code that they share; and Redis' clock.

Scripts that end work or free memory may run when the server's memory is used up (`flags=allow-oom`); scripts that begin
work may not. Every script declares its prefix as a key: a prefix with a hash tag (`{gen}:`) keeps all keys of a service
in one slot, so that a server in cluster mode takes them.
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
"""Names of keys and helpers, with which every script begins."""


def concat_scripts(*files: Path) -> str:
    """Concatenates files. The last one's first line may set the flags of all: `#!lua flags=…`."""
    *preludes, script = (file.read_text() for file in files)
    first, newline, remaining = script.partition("\n")
    return "".join((first, newline, *preludes, remaining) if first.startswith("#!") else (*preludes, script))


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def flat(fields: Mapping[str, Any]) -> list[Any]:
    """Returns names and values in the order that `HSET` takes."""
    return [part for pair in fields.items() for part in pair]


def call_id() -> str:
    """Returns an id for one call of a script, by which the script recognizes redis-py's retries."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Replication:
    """Number of replicas that must have a write before it counts as done, and the time for them."""

    replicas: int = 0
    limit_s: float = 1.0


UNREPLICATED: Final = Replication()


class Scripts:
    """Scripts of one package, each sent to the server once and then called by its digest."""

    def __init__(
        self, redis: Redis, prefix: str, source: Callable[[str], str], replication: Replication = UNREPLICATED
    ) -> None:
        """`source` returns a script's text by its name. Each script gets `prefix` in ARGV[1]."""
        self._redis = redis
        self._prefix = prefix
        self._source = source
        self._replication = replication
        self._scripts: dict[str, AsyncScript] = {}

    async def run(self, name: str, args: Sequence[Any]) -> Any:
        """Runs the script `name` with the prefix and `args` as ARGV."""
        return await self._script(name)(keys=[self._prefix], args=[self._prefix, *args])

    async def call(self, name: str, queue: str = "", *, replicated: bool = False, **arguments: Any) -> Any:
        """Runs a script that takes a JSON object, and decodes its answer. Arguments that are None are left out.

        A `replicated` call raises TimeoutError unless the replicas have it in time.
        """
        present = {argument: value for argument, value in arguments.items() if value is not None}
        run = self.run_replicated if replicated and self._replication.replicas else self.run
        answer = await run(name, [queue, json.dumps(present, separators=(",", ":"))])
        return None if answer is None else json.loads(answer)

    async def run_replicated(self, name: str, args: Sequence[Any]) -> Any:
        """Runs a script and waits for the replicas. Raises TimeoutError unless they have its writes in time."""
        replication = self._replication
        async with self._redis.pipeline(transaction=False) as pipe:
            await self._script(name)(keys=[self._prefix], args=[self._prefix, *args], client=pipe)
            # WAIT waits for the connection's last write, but a repeated script may write nothing.
            pipe.incr(f"{self._prefix}replicated")
            pipe.execute_command("WAIT", replication.replicas, milliseconds(replication.limit_s))
            reply, _, count = await pipe.execute()
        if count < replication.replicas:
            raise TimeoutError(f"{count} of {replication.replicas} replicas have the write")
        return reply

    def _script(self, name: str) -> AsyncScript:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._redis.register_script(self._source(name))
        return script


_READ_INTERVAL_S: Final = 10.0
_SLOW_S: Final = 0.25
"""Longest time of a reading that is precise enough."""


class RedisClock:
    """Clock of the server for deadlines in scripts. It reads `TIME` now and then and interpolates.

    It is ahead of Redis' clock by no more than a reading took, and never behind. The exception is a slow first
    reading: then it is behind by as much until a reading is fast.
    """

    def __init__(self, redis: Redis, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._monotonic = monotonic
        self._ahead_s: float | None = None
        self._read_at = float("-inf")

    async def now(self) -> float:
        """Returns the server's epoch seconds. Raises RedisError if they have to be read and can't be."""
        if self._ahead_s is None or self._monotonic() - self._read_at > _READ_INTERVAL_S:
            await self._read()
        assert self._ahead_s is not None
        return self._monotonic() + self._ahead_s

    def forget(self) -> None:
        """Makes the next call read the time: after a failover, another server answers."""
        self._ahead_s = None

    async def _read(self) -> None:
        sent_at = self._monotonic()
        seconds, micros = await cast(Awaitable[tuple[int, int]], self._redis.time())
        received_at, server = self._monotonic(), int(seconds) + int(micros) / 1e6
        if received_at - sent_at < _SLOW_S:
            self._ahead_s, self._read_at = server - sent_at, received_at
        elif self._ahead_s is None:
            self._ahead_s = server - received_at
