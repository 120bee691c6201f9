"""When requests arrive in an open loop: fixed beforehand, whatever the answers do."""

from __future__ import annotations

import random
from itertools import accumulate, takewhile
from typing import Literal, TypeAlias

Arrivals: TypeAlias = Literal["poisson", "constant"]


def schedule(arrivals: Arrivals, rate: float, duration: float, seed: int = 0) -> list[float]:
    """Seconds after the start, rising, all below `duration`. `rate` is the mean number per second.

    `constant` arrivals are evenly spaced and start at once. `poisson` arrivals are independent of each other, as those
    of many clients are: gaps are exponentially distributed. One seed always gives the same schedule.
    """
    if arrivals == "constant":
        return [n / rate for n in range(round(rate * duration))]
    chance = random.Random(seed)
    endless = iter(lambda: chance.expovariate(rate), None)
    return list(takewhile(lambda moment: moment < duration, accumulate(endless)))
