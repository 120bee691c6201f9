"""Counters and histograms that replicas report, and the number of replicas.

Counters only grow, so those of several replicas add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from deployments.contract.model_fault import ModelFault


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Replicas of one deployment, as Serve's controller counts them now."""

    states: Mapping[str, int]
    """Number of replicas by state: RUNNING, STARTING, …"""
    target: int
    bounds: tuple[int, int] | None = None
    """Minimum and maximum of autoscaling; None for a fixed number."""
    fault: ModelFault | None = None
    """Why the last replica failed to start, if none runs."""


@dataclass(frozen=True, slots=True)
class Histogram:
    buckets: tuple[tuple[float, int], ...]
    """Upper bounds, the last one infinite, each with the number of values at or below it."""
    sum: float

    @property
    def count(self) -> int:
        return self.buckets[-1][1]

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Buckets:
    bounds: tuple[int, ...]
    """Upper bounds, in counted units."""
    per_unit: float = 1.0
    """Counted units per reported unit: 1000 if counted in ms and reported in s."""

    def field(self, name: str, value: float) -> str:
        """Returns the counter of the bucket that `value` lies in."""
        return self.fields(name)[bisect_left(self.bounds, value)]

    def fields(self, name: str) -> list[str]:
        return [f"{name}:{bound}" for bound in (*self.bounds, "more")]

    def read(self, name: str, raw: Mapping[str, str | float], total: str | None = None) -> Histogram:
        """Reads counters from a hash. `total` names the counter of the sum, `sum_field(name)` by default."""
        below, buckets = 0, []
        for bound in self.bounds:
            below += int(float(raw.get(f"{name}:{bound}", 0)))
            buckets.append((bound / self.per_unit, below))
        buckets.append((float("inf"), below + int(float(raw.get(f"{name}:more", 0)))))
        return Histogram(tuple(buckets), float(raw.get(total or sum_field(name), 0)) / self.per_unit)


def sum_field(name: str) -> str:
    return f"{name}:sum"


STEPS: Final = "steps"
"""Forward passes of a batch."""
MEMBERS: Final = "members"
"""Images in these passes."""
STEP_SIZE: Final = "step_megapixels"
"""Sums over steps of the size (megapixels of all members), its square, and its product with the seconds: they give a
line of seconds by size."""
STEP_SIZE_SQUARED: Final = "step_megapixels_squared"
STEP_SIZE_SECONDS: Final = "step_megapixel_seconds"
JOBS: Final = "jobs"
"""Jobs finished."""
BUSY_S: Final = "busy_s"
"""Seconds with at least one job."""
LOADS: Final = "loads"
"""Replicas that loaded their model and finished a job."""
LOAD_S: Final = "load_s"
"""Seconds that loading took them."""

OUT_OF_MEMORY: Final = "out_of_memory"
"""Calls of the backend that did not fit into memory; each was repeated in a smaller batch or alone."""
NOT_FINITE: Final = "not_finite"
"""Calls of the backend that returned NaN or infinity."""
COMPILE_FALLBACKS: Final = "compile_fallbacks"
"""Replicas that run without compilation because it failed."""
ATTENTION_FALLBACKS: Final = "attention_fallbacks"
"""Configured attention backends that do not work, summed over replicas."""
FAULTS: Final = (OUT_OF_MEMORY, NOT_FINITE, COMPILE_FALLBACKS, ATTENTION_FALLBACKS)

BATCH: Final = "batch"
"""Histogram of members of a step; its sum is MEMBERS."""
BATCHES: Final = Buckets((1, 2, 4, 8, 16, 32, 64))
STEP: Final = "step_ms"
"""Histogram of the duration of a step."""
STEP_TIMES: Final = Buckets((5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000), per_unit=1000)

CALLS: Final = ("encode", "steps", "finish")
"""Calls of a backend that use the device."""
CACHES: Final = ("prompts", "references", "adapters")


def seconds_field(call: str) -> str:
    return f"{call}_s"


class CacheCounts(Protocol):
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def evictions(self) -> int: ...


def cache_counts(name: str, stats: CacheCounts) -> dict[str, int]:
    """Returns the counters of a cache by name."""
    return {hits(name): stats.hits, misses(name): stats.misses, evictions(name): stats.evictions}


def hits(cache: str) -> str:
    return f"{cache}_hits"


def misses(cache: str) -> str:
    return f"{cache}_misses"


def evictions(cache: str) -> str:
    return f"{cache}_evictions"
