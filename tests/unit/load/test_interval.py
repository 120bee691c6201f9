from __future__ import annotations

import random

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
