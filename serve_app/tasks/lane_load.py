"""How much waits in a lane, and for how long: as metrics, the fleet page and the list of models tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deployments.contract.histogram import Histogram
from serve_app.tasks.store import TaskStore
from serve_app.tasks.timings import WORK, timings


@dataclass(frozen=True, slots=True)
class LaneLoad:
    queued: int
    suspects: int
    running: int
    counts: Mapping[str, int]
    """Of tasks by how they ended, and of what else happened to them."""
    histograms: Mapping[str, Histogram]
    """By the names of `timings.py`."""

    @property
    def queued_s(self) -> float | None:
        """The work that waits, in seconds of one task after the other, by how long tasks took so far; None where none
        has ended yet."""
        mean = self.histograms[WORK].mean
        return None if mean is None else (self.queued + self.suspects) * mean

    @property
    def wait_s(self) -> float | None:
        """Of a task submitted now, if as many run at a time as do now; None as `queued_s`."""
        return None if self.queued_s is None else self.queued_s / max(self.running, 1)


async def load_of(tasks: TaskStore, lane: str) -> LaneLoad:
    counts = await tasks.counts(lane)
    queued, suspects, running = (counts.pop(kind) for kind in ("queued", "suspects", "leased"))
    return LaneLoad(queued, suspects, running, counts, await timings(tasks.redis, tasks.prefix, lane))
