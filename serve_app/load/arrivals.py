"""When requests arrive in an open loop: fixed beforehand, whatever the answers do."""

from __future__ import annotations

import math
import random
from itertools import accumulate, takewhile
from typing import Final, Literal, TypeAlias, get_args

Arrivals: TypeAlias = Literal["poisson", "constant", "bursts", "diurnal"]
PATTERNS: Final[tuple[Arrivals, ...]] = get_args(Arrivals)

_PEAKS: Final = {"poisson": 1.0, "constant": 1.0, "bursts": 4.0, "diurnal": 1.8}
"""How many times the mean rate there is at the most, unless said otherwise."""
_PERIOD_S: Final = 60.0


def schedule(
    arrivals: Arrivals,
    rate: float,
    duration: float,
    seed: int = 0,
    *,
    peak: float | None = None,
    period: float = _PERIOD_S,
) -> list[float]:
    """Seconds after the start, rising, all below `duration`. `rate` is the mean number per second.

    `constant` arrivals are evenly spaced and start at once. `poisson` arrivals are independent of each other, as those
    of many clients are: gaps are exponentially distributed. `bursts` come at `peak` times the mean rate at the
    beginning of each `period` of seconds, and then not at all. `diurnal` ones rise and fall like a day that lasts a
    `period`, from its quietest moment to `peak` times the mean and back. One seed always gives the same schedule.

    Raises ValueError for what is no such pattern.
    """
    _check(arrivals, rate, peak, period)
    if arrivals == "constant":
        return [n / rate for n in range(round(rate * duration))]
    chance = random.Random(seed)
    most = _PEAKS[arrivals] if peak is None else peak
    endless = iter(lambda: chance.expovariate(rate * most), None)
    moments = takewhile(lambda moment: moment < duration, accumulate(endless))
    if arrivals == "poisson":
        return list(moments)
    # Thinning (Lewis and Shedler 1979): of arrivals at the highest rate, each stays with the share of its own moment.
    return [moment for moment in moments if chance.random() * most < _times_the_mean(arrivals, most, moment / period)]


def _times_the_mean(arrivals: Arrivals, peak: float, periods: float) -> float:
    phase = periods % 1
    if arrivals == "bursts":
        return peak if phase < 1 / peak else 0.0
    return 1 - (peak - 1) * math.cos(2 * math.pi * phase)


def _check(arrivals: Arrivals, rate: float, peak: float | None, period: float) -> None:
    if arrivals not in PATTERNS:
        raise ValueError(f"arrivals should be one of {', '.join(PATTERNS)}, not {arrivals!r}")
    if not 0 < rate < math.inf:
        raise ValueError(f"the rate should be a number of requests per second above 0, not {rate}")
    if not 0 < period < math.inf:
        raise ValueError(f"the period should be a number of seconds above 0, not {period}")
    if peak is None:
        return
    if arrivals not in ("bursts", "diurnal"):
        raise ValueError(f"{arrivals} arrivals have no peak; bursts and diurnal ones have")
    if arrivals == "bursts" and not 1 < peak < math.inf:
        raise ValueError(f"the peak of bursts should be more than 1 times the mean rate, not {peak}")
    if arrivals == "diurnal" and not 1 < peak <= 2:
        raise ValueError(f"the peak of diurnal arrivals should be between 1 and 2 times the mean rate, not {peak}")
