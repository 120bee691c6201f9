"""Counters and histograms that replicas report, and how many replicas there are.

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
    """Of one deployment, as Serve's controller has them now."""

    states: Mapping[str, int]
    """How many by their state: RUNNING, STARTING, …"""
    target: int
    bounds: tuple[int, int] | None = None
    """Fewest and most of autoscaling; None where the number is fixed."""
    fault: ModelFault | None = None
    """Why none of them runs, where the last one failed to start."""


@dataclass(frozen=True, slots=True)
class Histogram:
    buckets: tuple[tuple[float, int], ...]
    """Upper bounds, the last one infinite, each with how many lie at or below it."""
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
    """Upper bounds, as they are counted."""
    per_unit: float = 1.0
    """How many of what is counted are one of what is told: 1000 where milliseconds are told as seconds."""

    def field(self, name: str, value: float) -> str:
        """The counter of the bucket that `value` lies in."""
        return self.fields(name)[bisect_left(self.bounds, value)]

    def fields(self, name: str) -> list[str]:
        """The counters of all buckets."""
        return [f"{name}:{bound}" for bound in (*self.bounds, "more")]

    def read(self, name: str, raw: Mapping[str, str | float], total: str | None = None) -> Histogram:
        """From a hash; `total` names the counter of the sum where it has a name of its own."""
        below, buckets = 0, []
        for bound in self.bounds:
            below += int(float(raw.get(f"{name}:{bound}", 0)))
            buckets.append((bound / self.per_unit, below))
        buckets.append((float("inf"), below + int(float(raw.get(f"{name}:more", 0)))))
        return Histogram(tuple(buckets), float(raw.get(total or sum_field(name), 0)) / self.per_unit)


def sum_field(name: str) -> str:
    return f"{name}:sum"


STEPS: Final = "steps"
"""Forwards of any number of images."""
MEMBERS: Final = "members"
"""Images in them, all together."""
STEP_SIZE: Final = "step_megapixels"
"""Sums over steps, for a line through their seconds by their size in megapixels (`GenerationJob.megapixels` of all
members): of the size, its square, and its product with the seconds."""
STEP_SIZE_SQUARED: Final = "step_megapixels_squared"
STEP_SIZE_SECONDS: Final = "step_megapixel_seconds"
JOBS: Final = "jobs"
"""That were done."""
BUSY_S: Final = "busy_s"
"""Seconds in which there was a job."""
LOADS: Final = "loads"
"""Replicas that loaded their model and told of a job."""
LOAD_S: Final = "load_s"
"""Seconds that it took them."""

OUT_OF_MEMORY: Final = "out_of_memory"
"""Calls of the backend that did not fit into memory; each was tried again in a smaller batch or alone."""
NOT_FINITE: Final = "not_finite"
"""Calls of the backend that gave NaN or infinity."""
COMPILE_FALLBACKS: Final = "compile_fallbacks"
"""Replicas that run without compilation because it failed."""
ATTENTION_FALLBACKS: Final = "attention_fallbacks"
"""Configured attention backends that do not work, by replica."""
FAULTS: Final = (OUT_OF_MEMORY, NOT_FINITE, COMPILE_FALLBACKS, ATTENTION_FALLBACKS)

BATCH: Final = "batch"
"""A histogram: how many took a step together. MEMBERS is its sum."""
BATCHES: Final = Buckets((1, 2, 4, 8, 16, 32, 64))
STEP: Final = "step_ms"
"""A histogram: how long a step took."""
STEP_TIMES: Final = Buckets((5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000), per_unit=1000)

CALLS: Final = ("encode", "steps", "finish")
"""What a backend does on its device."""
CACHES: Final = ("prompts", "references", "adapters")
"""What is kept for further jobs."""


def seconds(call: str) -> str:
    """Of a call of a backend."""
    return f"{call}_s"


class CacheCounts(Protocol):
    """What a cache counts."""

    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def evictions(self) -> int: ...


def cache_counts(name: str, stats: CacheCounts) -> dict[str, int]:
    """Hits, misses and evictions of a cache, by their names."""
    return {hits(name): stats.hits, misses(name): stats.misses, evictions(name): stats.evictions}


def hits(cache: str) -> str:
    return f"{cache}_hits"


def misses(cache: str) -> str:
    return f"{cache}_misses"


def evictions(cache: str) -> str:
    return f"{cache}_evictions"
