"""How sure a figure is: the median of several rounds, with an interval that would hold it 95 times of 100."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

_RESAMPLES = 4000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its 95 % interval, by the percentile bootstrap (Efron 1979): the values are drawn anew, with
    replacement, thousands of times, and the middle 95 % of the medians of those draws are the interval.

    Of fewer than five values it is little more than their range.
    """

    n: int
    low: float
    middle: float
    high: float

    @classmethod
    def of_median(cls, values: Sequence[float], seed: int = 0) -> Self:
        """Raises ValueError without values. One seed always gives the same interval."""
        if not values:
            raise ValueError("no values")
        measured = np.asarray(values, float)
        return cls._of(len(values), float(np.median(measured)), _medians(measured, np.random.default_rng(seed)))

    @classmethod
    def of_ratio(cls, over: Sequence[float], under: Sequence[float], seed: int = 0) -> Self:
        """Of the median of `over` to that of `under`, which are drawn independently of each other.

        Raises ValueError when one of them is empty or a value of `under` is not positive.
        """
        if not over or not under:
            raise ValueError("no values")
        if min(under) <= 0:
            raise ValueError("a ratio to something that is not positive")
        above, below = np.asarray(over, float), np.asarray(under, float)
        chance = np.random.default_rng(seed)
        ratios = _medians(above, chance) / _medians(below, chance)
        return cls._of(min(len(over), len(under)), float(np.median(above) / np.median(below)), ratios)

    @classmethod
    def _of(cls, n: int, middle: float, drawn: np.ndarray) -> Self:
        low, high = (float(value) for value in np.quantile(drawn, _TAILS))
        return cls(n, min(low, middle), middle, max(high, middle))

    def excludes(self, value: float) -> bool:
        """Whether this is a difference from `value` rather than chance."""
        return not self.low <= value <= self.high

    def as_json(self) -> dict[str, float]:
        return {"n": self.n, "low": round(self.low, 4), "median": round(self.middle, 4), "high": round(self.high, 4)}


def _medians(values: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """(draws,)"""
    return np.median(values[chance.integers(len(values), size=(_RESAMPLES, len(values)))], axis=1)
