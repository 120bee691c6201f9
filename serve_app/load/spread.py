"""Many measurements in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which the share `q` lies, interpolated between neighbours. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
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
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """None without values."""
        if not values:
            return None
        p50, p90, p99 = (quantile(values, q) for q in (0.5, 0.9, 0.99))
        return cls(len(values), p50, p90, p99, max(values))

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}
