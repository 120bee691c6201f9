from __future__ import annotations

from itertools import pairwise
from statistics import mean, stdev
from typing import Any

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


@pytest.mark.parametrize("arrivals", ["poisson", "constant", "bursts", "diurnal"])
def test_moments_rise_and_end_with_the_duration(arrivals: Arrivals) -> None:
    moments = schedule(arrivals, rate=7, duration=20)
    assert len(moments) > 20
    assert moments == sorted(moments)
    assert all(0 <= moment < 20 for moment in moments)


def test_bursts_keep_the_mean_and_come_at_the_beginning_of_each_period() -> None:
    moments = schedule("bursts", rate=5, duration=4000, seed=1, peak=4, period=40)
    assert len(moments) / 4000 == pytest.approx(5, rel=0.05)
    assert all(moment % 40 < 10 for moment in moments)


def test_diurnal_arrivals_rise_and_fall_around_the_mean() -> None:
    moments = schedule("diurnal", rate=5, duration=4000, seed=1, peak=1.8, period=100)
    assert len(moments) / 4000 == pytest.approx(5, rel=0.05)
    quiet = sum(moment % 100 < 10 or moment % 100 >= 90 for moment in moments) / 800
    busy = sum(40 <= moment % 100 < 60 for moment in moments) / 800
    assert quiet == pytest.approx(5 * (1 - 0.8 * 0.935), rel=0.15)
    assert busy == pytest.approx(5 * (1 + 0.8 * 0.935), rel=0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"arrivals": "sometimes"}, "arrivals should be one of poisson, constant, bursts, diurnal"),
        ({"rate": 0}, "the rate should be"),
        ({"period": 0}, "the period should be"),
        ({"peak": 2}, "poisson arrivals have no peak"),
        ({"arrivals": "bursts", "peak": 1}, "the peak of bursts should be more than 1"),
        ({"arrivals": "diurnal", "peak": 3}, "between 1 and 2"),
    ],
)
def test_what_is_no_pattern_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schedule(**{"arrivals": "poisson", "rate": 1.0, "duration": 10.0, **words})
