from __future__ import annotations

from itertools import pairwise
from statistics import mean, stdev

import pytest

from serve_app.load.arrivals import Arrivals, schedule


def test_poisson_arrivals_have_the_mean_rate_and_exponential_gaps() -> None:
    moments = schedule("poisson", rate=5, duration=2000, seed=1)
    assert len(moments) / 2000 == pytest.approx(5, rel=0.05)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert stdev(gaps) == pytest.approx(0.2, rel=0.05)  # of an exponential distribution, the same as its mean


def test_a_seed_means_one_schedule() -> None:
    assert schedule("poisson", 3, 50, seed=4) == schedule("poisson", 3, 50, seed=4)
    assert schedule("poisson", 3, 50, seed=4) != schedule("poisson", 3, 50, seed=5)


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert schedule("constant", rate=4, duration=1.5) == [0, 0.25, 0.5, 0.75, 1.0, 1.25]


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_moments_rise_and_end_with_the_duration(arrivals: Arrivals) -> None:
    moments = schedule(arrivals, rate=7, duration=20)
    assert len(moments) > 20
    assert moments == sorted(moments)
    assert all(0 <= moment < 20 for moment in moments)
