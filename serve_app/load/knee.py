"""The knee of a server: the highest rate at which enough of its results come within the objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

_WIDTH: Final = 1.05
"""Of the bracket: its upper rate against its lower one."""
_MOST_RUNS: Final = 60
_LEAST_RATE: Final = 1e-3
_Z: Final = 1.96
"""Of a 95 % interval."""
_CONFIRMATIONS: Final = 2
"""Runs that each end of the bracket has at the least."""
_UNSURE_RUNS: Final = 3
"""And where they leave it open which side of the objective a rate is on."""


class NoKnee(Exception):
    """Why there is none to be found."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A run at one rate."""

    requests: int
    good: int


@dataclass(slots=True)
class Rate:
    """All runs at one rate, taken together."""

    per_s: float
    trials: list[Trial] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return sum(trial.requests for trial in self.trials)

    @property
    def attainment(self) -> float:
        return sum(trial.good for trial in self.trials) / self.requests

    def unsure(self, share: float) -> bool:
        """Whether `share` lies within the 95 % interval of the attainment (Wilson 1927)."""
        n, p = self.requests, self.attainment
        middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
        return abs(share - middle) <= half

    def as_json(self) -> dict[str, Any]:
        return {
            "rate": round(self.per_s, 4),
            "runs": len(self.trials),
            "requests": self.requests,
            "attainment": round(self.attainment, 4),
        }


@dataclass(frozen=True, slots=True)
class Knee:
    """`holds` is the highest rate that was seen to hold, `fails` the lowest above it that did not, at most 5 % more.
    Each had two runs or more, which count as one."""

    holds: Rate
    fails: Rate
    share: float

    def as_json(self) -> dict[str, Any]:
        return {"holds": self.holds.as_json(), "fails": self.fails.as_json(), "share": self.share}


def search(measure: Callable[[float, int], Trial], share: float, start: float = 1.0) -> Knee:
    """`measure` runs at a rate with a seed; the seed is 0 at first and counts the runs of that rate. The rate is
    doubled from `start` until it fails, or halved until it holds; then the bracket is halved, in ratio, until its ends
    are 5 % apart; then both are run again, and where that turns one round the search goes on.

    Raises NoKnee where no rate holds, or runs at one rate say now this and now that.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share should be between 0 and 1, not {share:g}")
    return _Search(measure, share).found(start)


@dataclass(slots=True)
class _Search:
    measure: Callable[[float, int], Trial]
    share: float
    rates: dict[float, Rate] = field(default_factory=dict)
    runs: int = 0

    def found(self, start: float) -> Knee:
        low, high = self._bracket(start)
        while True:
            while high / low > _WIDTH:
                middle = math.sqrt(low * high)
                low, high = (middle, high) if self._holds(middle) else (low, middle)
            if not self._holds(low, _CONFIRMATIONS):
                low, high = self._below(low), low
            elif self._holds(high, _CONFIRMATIONS):
                low, high = high, self._above(high)
            else:
                return Knee(self.rates[low], self.rates[high], self.share)

    def _bracket(self, start: float) -> tuple[float, float]:
        if self._holds(start):
            return start, self._above(start, 2.0)
        return self._below(start, 2.0), start

    def _above(self, rate: float, factor: float = _WIDTH) -> float:
        """The next rate that fails."""
        rate *= factor
        while self._holds(rate):
            rate *= factor
        return rate

    def _below(self, rate: float, factor: float = _WIDTH) -> float:
        rate /= factor
        while not self._holds(rate):
            rate /= factor
            if rate < _LEAST_RATE:
                raise NoKnee(f"not even {rate:g} requests per second hold the objective")
        return rate

    def _holds(self, per_s: float, least: int = 1) -> bool:
        rate = self.rates.setdefault(per_s, Rate(per_s))
        while len(rate.trials) < least or (rate.unsure(self.share) and len(rate.trials) < _UNSURE_RUNS):
            if self.runs == _MOST_RUNS:
                raise NoKnee(f"after {_MOST_RUNS} runs it is still open where it is: longer runs would tell")
            self.runs += 1
            trial = self.measure(per_s, len(rate.trials))
            if not trial.requests:
                raise NoKnee(f"a run at {per_s:g} requests per second was too short for a single request")
            rate.trials.append(trial)
        return rate.attainment >= self.share
