"""Load of a queue: numbers of tasks, their durations, and the wait of a new task."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from redis.asyncio import Redis

from deployments.contract.counts import Buckets, Histogram
from serve_app.tasks.store import TaskStore
from serve_app.tasks.windows import WindowReader

BUCKETS: Final = Buckets(
    (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000), per_unit=1000
)
"""Upper bounds in milliseconds, as in `timings.lua`."""

WAIT: Final = "wait"
"""Time from submission to the first start of work."""
WORK: Final = "work"
"""Time from the first start of work to the result, of tasks that became ready."""


async def timings(redis: Redis, prefix: str, queue: str) -> dict[str, Histogram]:
    """Returns the histograms WAIT and WORK of a queue."""
    raw = await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}timings:{queue}"))
    return {name: BUCKETS.read(name, raw) for name in (WAIT, WORK)}


@dataclass(frozen=True, slots=True)
class QueueLoad:
    queued: int
    quarantined: int
    running: int
    counts: Mapping[str, int]
    """Numbers of tasks by outcome, and of other events."""
    histograms: Mapping[str, Histogram]
    """Histograms since the store began, by their names in `timings.lua`."""
    run_s: float | None
    """Mean seconds of a run in the last hour, else the last day, else since the store began; None before the first."""

    @property
    def queued_s(self) -> float | None:
        """Seconds that the waiting tasks take one after the other; None without `run_s`."""
        return None if self.run_s is None else (self.queued + self.quarantined) * self.run_s

    @property
    def wait_s(self) -> float | None:
        """Seconds that a task submitted now waits, if as many run at a time as now; None without `run_s`."""
        return None if self.queued_s is None else self.queued_s / max(self.running, 1)


async def get_queue_load(tasks: TaskStore, windows: WindowReader, queue: str) -> QueueLoad:
    counts = await tasks.reads.counts(queue)
    queued, quarantined, running = (counts.pop(name) for name in ("queued", "quarantined", "leased"))
    histograms = await timings(tasks.redis, tasks.prefix, queue)
    run_s = (await windows.read(queue, "1h")).run_s
    if run_s is None:
        run_s = (await windows.read(queue, "24h")).run_s
    if run_s is None:
        run_s = histograms[WORK].mean
    return QueueLoad(queued, quarantined, running, counts, histograms, run_s)
