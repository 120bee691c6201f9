"""Many measurements in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which the share `q` lies, interpolated between neighbours. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    return _of_ordered(sorted(values), q)


def _of_ordered(ordered: Sequence[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True)
class Spread:
    """In the unit of the values. A p99 of fewer than 100 values is little more than their maximum."""

    n: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """None without values."""
        if not values:
            return None
        ordered = sorted(values)
        p50, p90, p95, p99, p999 = (_of_ordered(ordered, q) for q in (0.5, 0.9, 0.95, 0.99, 0.999))
        return cls(len(values), p50, p90, p95, p99, p999, ordered[-1])

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}
