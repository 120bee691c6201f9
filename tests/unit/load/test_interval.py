from __future__ import annotations

import random
from statistics import NormalDist

import numpy as np
import pytest

from serve_app.load.interval import Interval


def test_the_median_lies_within() -> None:
    interval = Interval.of_median([3, 1, 2, 5, 4])
    assert interval.low <= interval.middle == 3 <= interval.high
    assert (interval.low, interval.high) == (1, 5)


def test_it_holds_the_true_median_nearly_always() -> None:
    chance = random.Random(1)
    held = sum(
        not Interval.of_median([chance.gauss(10, 2) for _ in range(15)], seed=trial).excludes(10)
        for trial in range(100)
    )
    assert held >= 88


def test_it_narrows_with_more_values() -> None:
    chance = random.Random(1)
    few = Interval.of_median([chance.gauss(10, 1) for _ in range(8)])
    many = Interval.of_median([chance.gauss(10, 1) for _ in range(400)])
    assert many.high - many.low < (few.high - few.low) / 2


def test_equal_rounds_have_no_width() -> None:
    assert Interval.of_median([2.0] * 5).as_json() == {"n": 5, "low": 2, "median": 2, "high": 2}


def test_a_ratio_of_what_differs_excludes_one_and_of_noise_does_not() -> None:
    chance = random.Random(2)
    base = [chance.gauss(100, 5) for _ in range(9)]
    assert Interval.of_ratio([chance.gauss(130, 5) for _ in range(9)], base).excludes(1)
    assert not Interval.of_ratio([chance.gauss(100, 5) for _ in range(9)], base).excludes(1)


def test_one_seed_gives_one_interval() -> None:
    values = [random.Random(3).random() for _ in range(9)]
    assert Interval.of_median(values) == Interval.of_median(values)


@pytest.mark.parametrize(("over", "under"), [([], [1.0]), ([1.0], []), ([1.0], [0.0]), ([1.0], [2.0, -1.0])])
def test_what_is_no_ratio_is_refused(over: list[float], under: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no values|not positive"):
        Interval.of_ratio(over, under)


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        Interval.of_median([])


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_a_quantile_is_held_nearly_always(q: float) -> None:
    chance = random.Random(1)
    true = NormalDist(10, 2).inv_cdf(q)
    held = sum(
        not Interval.of_quantile([chance.gauss(10, 2) for _ in range(200)], q, seed=trial).excludes(true)
        for trial in range(100)
    )
    assert held >= 88


def test_resamples_are_those_that_drawing_value_by_value_gives() -> None:
    values = [random.Random(n).lognormvariate(0, 1) for n in range(41)]
    drawn = np.random.default_rng(1).choice(values, (20_000, 41))
    for q in (0.5, 0.63, 0.9, 1.0):
        low, high = np.quantile(np.quantile(drawn, q, axis=1), (0.025, 0.975))
        interval = Interval.of_quantile(values, q)
        assert (interval.low, interval.high) == pytest.approx((low, high), rel=0.1)


def test_a_ratio_of_other_quantiles() -> None:
    base = [float(n) for n in range(1, 101)]
    ratio = Interval.of_ratio([2 * value for value in base], base, q=0.9)
    assert ratio.middle == pytest.approx(2)
    assert ratio.excludes(1)


def test_a_ratio_of_means_is_one_of_rates() -> None:
    chance = random.Random(1)
    some, more = ([float(chance.random() < share) for _ in range(400)] for share in (0.5, 0.8))
    assert Interval.of_mean_ratio(more, some).excludes(1)
    assert Interval.of_mean_ratio(more, some).middle == pytest.approx(sum(more) / sum(some))
    assert not Interval.of_mean_ratio(some, some).excludes(1)
    assert Interval.of_mean_ratio([0.0], some).middle == 0


def test_a_mean_that_may_be_nothing_has_no_upper_end() -> None:
    assert Interval.of_mean_ratio([1.0] * 3, [0.0, 0.0, 1.0]).high == float("inf")
    with pytest.raises(ValueError, match="not positive"):
        Interval.of_mean_ratio([1.0], [0.0])
