"""Histograms as hashes of counters keep them: `<name>:<upper bound>` for each bucket, `<name>:more` above the last one,
`<name>:sum`. Whoever counts adds to one bucket and to the sum, so histograms of many processes add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass


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
