"""What a Redis server spends on calls, as it and its kernel tell it: no client and no network is part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from redis.asyncio import Redis

_SCRIPTS: Final = ("cmdstat_evalsha", "cmdstat_eval")
_OWN: Final = ("cmdstat_info",)
"""What reads these figures."""


@dataclass(frozen=True, slots=True)
class ServerCost:
    """Of whatever was called between two readings, in microseconds."""

    cpu_us: float
    """Of the thread that serves all clients: reading, the command, its line in the append-only file, answering, and
    the server's own timers. Waiting for a core is no part of it."""
    inside_us: float
    """Inside of commands, by the wall clock: what a script took, all that it called included."""


@dataclass(frozen=True, slots=True)
class Reading:
    cpu_us: float
    stats: Mapping[str, Any]

    @classmethod
    async def of(cls, redis: Redis, pid: int) -> Self:
        stats = await redis.info("commandstats")
        return cls(main_thread_cpu_us(pid), stats)

    def until(self, later: Reading) -> ServerCost:
        """Commands that scripts call are counted in the scripts: what is called must be all scripts, or none."""
        spent = {name: usec - _usec(self.stats, name) for name, usec in _all_usec(later.stats).items()}
        scripts = sum(spent.get(name, 0.0) for name in _SCRIPTS)
        return ServerCost(later.cpu_us - self.cpu_us, scripts or sum(spent.values()))


def main_thread_cpu_us(pid: int) -> float:
    """CPU time of a process' first thread so far; exact while it waits. Raises OSError where there is no such one."""
    nanoseconds, _, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(nanoseconds) / 1000


def _all_usec(stats: Mapping[str, Any]) -> dict[str, float]:
    return {name: _usec(stats, name) for name in stats if name not in _OWN}


def _usec(stats: Mapping[str, Any], name: str) -> float:
    return float(stats[name]["usec"]) if name in stats else 0.0
