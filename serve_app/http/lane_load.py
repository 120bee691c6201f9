"""How much waits in a lane, and for how long: as the fleet page and the list of models tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deployments.contract.histogram import Histogram
from serve_app.tasks.store import TaskStore
from serve_app.tasks.timings import WORK, Forecast, forecast, timings


@dataclass(frozen=True, slots=True)
class LaneLoad:
    queued: int
    suspects: int
    running: int
    counts: Mapping[str, int]
    """Of tasks by how they ended, and of what else happened to them."""
    histograms: Mapping[str, Histogram]

    @property
    def forecast(self) -> Forecast:
        return forecast(self.queued + self.suspects, self.running, self.histograms[WORK])


async def load_of(tasks: TaskStore, lane: str) -> LaneLoad:
    counts = await tasks.counts(lane)
    queued, suspects, running = (counts.pop(kind) for kind in ("queued", "suspects", "leased"))
    return LaneLoad(queued, suspects, running, counts, await timings(tasks.redis, tasks.prefix, lane))
