"""How long tasks of a lane waited and took: histograms kept by the steps of a task (`timings.lua`), as any replica
tells them.

`gen:timings:{lane}` is a hash of counters in milliseconds, by the names of `deployments/contract/histogram.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, cast

from redis.asyncio import Redis

from deployments.contract.histogram import Buckets, Histogram

BUCKETS: Final = Buckets(
    (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000), per_unit=1000
)
"""Upper bounds, as in `timings.lua`."""

WAIT: Final = "wait"
"""From submission to the first start of work."""
WORK: Final = "work"
"""From the first start of work to the result, of tasks that became ready."""


async def timings(redis: Redis, prefix: str, lane: str) -> dict[str, Histogram]:
    """The histograms WAIT and WORK of a lane."""
    raw = await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}timings:{lane}"))
    return {name: BUCKETS.read(name, raw) for name in (WAIT, WORK)}
