"""How sure a figure is: a statistic of what was measured, with an interval that would hold it 95 times of 100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

_RESAMPLES = 4000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Interval:
    """A statistic and its 95 % interval, by the percentile bootstrap (Efron 1979): the values are drawn anew, with
    replacement, thousands of times, and the middle 95 % of that statistic of those draws are the interval.

    Of fewer than five values it is little more than their range. One seed always gives the same interval.
    """

    n: int
    low: float
    middle: float
    high: float

    @classmethod
    def of_median(cls, values: Sequence[float], seed: int = 0) -> Self:
        """Raises ValueError without values."""
        return cls.of_quantile(values, 0.5, seed)

    @classmethod
    def of_quantile(cls, values: Sequence[float], q: float, seed: int = 0) -> Self:
        """Interpolated between neighbours. Raises ValueError without values."""
        measured = _some(values)
        drawn = _quantiles(measured, q, np.random.default_rng(seed))
        return cls._of(len(measured), float(np.quantile(measured, q)), drawn)

    @classmethod
    def of_ratio(cls, over: Sequence[float], under: Sequence[float], seed: int = 0, *, q: float = 0.5) -> Self:
        """Of the `q`-quantile of `over`, the median unless said otherwise, to that of `under`, which are drawn
        independently of each other.

        Raises ValueError when one of them is empty or a value of `under` is not positive.
        """
        above, below = _some(over), _some(under)
        if below.min() <= 0:
            raise ValueError("a ratio to something that is not positive")
        chance = np.random.default_rng(seed)
        ratios = _quantiles(above, q, chance) / _quantiles(below, q, chance)
        return cls._of(min(len(above), len(below)), float(np.quantile(above, q) / np.quantile(below, q)), ratios)

    @classmethod
    def of_mean_ratio(cls, over: Sequence[float], under: Sequence[float], seed: int = 0) -> Self:
        """Of the mean of `over` to that of `under`: of rates, where each request has what it brought.

        Raises ValueError when one of them is empty or the mean of `under` is not positive.
        """
        above, below = _some(over), _some(under)
        if below.mean() <= 0:
            raise ValueError("a ratio to something that is not positive")
        chance = np.random.default_rng(seed)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = _means(above, chance) / _means(below, chance)
        drawn = np.nan_to_num(ratios, nan=1.0, posinf=math.inf)
        return cls._of(min(len(above), len(below)), float(above.mean() / below.mean()), drawn)

    @classmethod
    def _of(cls, n: int, middle: float, drawn: np.ndarray[Any, Any]) -> Self:
        # Between draws that are infinite nothing can be interpolated.
        low, high = (float(value) for value in np.quantile(drawn, _TAILS, method="nearest"))
        return cls(n, min(low, middle), middle, max(high, middle))

    def excludes(self, value: float) -> bool:
        """Whether this is a difference from `value` rather than chance."""
        return not self.low <= value <= self.high

    def as_json(self) -> dict[str, float]:
        return {"n": self.n, "low": round(self.low, 4), "median": round(self.middle, 4), "high": round(self.high, 4)}


def _some(values: Sequence[float]) -> np.ndarray[Any, Any]:
    if not len(values):
        raise ValueError("no values")
    return np.asarray(values, float)


def _quantiles(values: np.ndarray[Any, Any], q: float, chance: np.random.Generator) -> np.ndarray[Any, Any]:
    """(draws,) The quantile of as many resamples.

    None is drawn value by value, which would take n numbers each: of n positions drawn evenly, the k-th smallest is
    distributed as Beta(k, n - k + 1), and the one above it, given that, as the least of the n - k that remain.
    """
    n = len(values)
    ordered = np.sort(values)
    place = q * (n - 1)
    k = int(place) + 1
    position = chance.beta(k, n - k + 1, _RESAMPLES)
    lower = ordered[np.minimum((position * n).astype(int), n - 1)]
    if k == n or place == k - 1:
        return lower
    above = 1 - (1 - position) * chance.random(_RESAMPLES) ** (1 / (n - k))
    upper = ordered[np.minimum((above * n).astype(int), n - 1)]
    return lower + (upper - lower) * (place - (k - 1))


def _means(values: np.ndarray[Any, Any], chance: np.random.Generator) -> np.ndarray[Any, Any]:
    """(draws,) The mean of as many resamples. What requests bring has few distinct values; how often each is drawn is
    enough to know."""
    distinct, counts = np.unique(values, return_counts=True)
    n = len(values)
    return np.array([chance.multinomial(n, counts / n) @ distinct for _ in range(_RESAMPLES)]) / n
