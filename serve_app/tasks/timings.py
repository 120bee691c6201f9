"""How long tasks of a lane waited and took: histograms kept by the steps of a task (`timings.lua`), as any replica
tells them.

`gen:timings:{lane}` is a hash of counters: `<name>:<upper bound in ms>`, above the last `<name>:more`, and
`<name>:sum` in ms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from redis.asyncio import Redis

BUCKETS_MS: Final = (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
"""Upper bounds, as in `timings.lua`."""

WAIT: Final = "wait"
"""From submission to the first start of work."""
WORK: Final = "work"
"""From the first start of work to the result, of tasks that became ready."""


@dataclass(frozen=True, slots=True)
class Histogram:
    buckets: tuple[tuple[float, int], ...]
    """Upper bounds in seconds, the last one infinite, each with how many lie at or below it."""
    sum_s: float

    @property
    def mean_s(self) -> float | None:
        """None where there is nothing in it."""
        count = self.buckets[-1][1]
        return self.sum_s / count if count else None


async def timings(redis: Redis, prefix: str, lane: str) -> dict[str, Histogram]:
    """The histograms WAIT and WORK of a lane."""
    raw = await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}timings:{lane}"))
    return {name: _histogram(name, raw) for name in (WAIT, WORK)}


def _histogram(name: str, raw: Mapping[str, str]) -> Histogram:
    below, buckets = 0, []
    for bound in BUCKETS_MS:
        below += int(raw.get(f"{name}:{bound}", 0))
        buckets.append((bound / 1000, below))
    buckets.append((float("inf"), below + int(raw.get(f"{name}:more", 0))))
    return Histogram(tuple(buckets), int(raw.get(f"{name}:sum", 0)) / 1000)
