"""The search, on an M/D/1 queue in virtual time: Poisson arrivals at one server that takes as long for each."""

from __future__ import annotations

from functools import cache

import pytest

from serve_app.load.arrivals import schedule
from serve_app.load.knee import Knee, NoKnee, Rate, Trial, search

SERVICE_S = 0.1
OBJECTIVE_S = 0.5
SHARE = 0.95


def attained(rate: float, seed: int, seconds: float = 4000.0) -> Trial:
    free, good = 0.0, 0
    moments = schedule("poisson", rate, seconds, seed)
    for moment in moments:
        free = max(free, moment) + SERVICE_S
        good += free - moment <= OBJECTIVE_S
    return Trial(len(moments), good)


@cache
def true_knee() -> float:
    """By a run that is far longer than any of the search's."""
    low, high = 1.0, 1 / SERVICE_S
    for _ in range(9):
        middle = (low + high) / 2
        trial = attained(middle, 1234, 20_000)
        low, high = (middle, high) if trial.good / trial.requests >= SHARE else (low, middle)
    return low


def test_the_knee_of_a_queue_is_found_within_5_percent_whatever_the_seed() -> None:
    knees = [search(lambda rate, n, s=s: attained(rate, 100 * s + n), SHARE).holds.per_s for s in range(4)]
    assert max(knees) / min(knees) <= 1.05
    assert all(knee == pytest.approx(true_knee(), rel=0.05) for knee in knees)


@pytest.mark.parametrize("start", [0.01, 1.0, 7.0, 300.0])
def test_it_is_found_from_anywhere(start: float) -> None:
    knee = search(lambda rate, n: attained(rate, n, 1000 if rate > 20 else 4000), SHARE, start)
    assert 1 < knee.fails.per_s / knee.holds.per_s <= 1.05 * (1 + 1e-9)
    assert knee.holds.attainment >= SHARE > knee.fails.attainment
    assert knee.holds.per_s == pytest.approx(true_knee(), rel=0.06)


def test_both_ends_of_the_bracket_are_run_again() -> None:
    calls: list[tuple[float, int]] = []

    def sharp(rate: float, number: int) -> Trial:
        calls.append((rate, number))
        return Trial(100, 100 if rate <= 10 else 0)

    knee = search(sharp, 0.99)
    assert knee.holds.per_s <= 10 < knee.fails.per_s
    assert len(knee.holds.trials) >= 2
    assert len(knee.fails.trials) >= 2
    assert (knee.holds.per_s, 1) in calls


def test_a_rate_that_held_by_luck_is_found_out() -> None:
    lucky: set[float] = set()

    def measure(rate: float, number: int) -> Trial:
        if rate > 10 and not lucky:
            lucky.add(rate)
        if rate in lucky:
            return Trial(1000, 1000 if number == 0 else 0)
        return Trial(1000, 1000 if rate <= 10 else 0)

    knee = search(measure, 0.9)
    assert lucky
    assert knee.holds.per_s <= 10 < knee.fails.per_s


def test_rates_near_the_share_are_run_until_it_is_clear_or_three_times() -> None:
    assert Rate(1, [Trial(100, 98)]).unsure(0.99)
    assert not Rate(1, [Trial(10_000, 9800)]).unsure(0.99)
    assert not Rate(1, [Trial(1000, 1000)]).unsure(0.99)


def test_a_server_that_holds_nothing_has_no_knee() -> None:
    with pytest.raises(NoKnee, match="not even"):
        search(lambda *_: Trial(10, 0), 0.9)


def test_one_that_holds_everything_has_none_either() -> None:
    with pytest.raises(NoKnee, match="after 60 runs"):
        search(lambda *_: Trial(1000, 1000), 0.9)


def test_a_run_without_requests_says_nothing() -> None:
    with pytest.raises(NoKnee, match="too short for a single request"):
        search(lambda *_: Trial(0, 0), 0.9)


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_is_between_none_and_all(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        search(lambda *_: Trial(1, 1), share)


def test_a_knee_is_plain_json() -> None:
    knee = Knee(Rate(2.0, [Trial(100, 99)] * 2), Rate(2.1, [Trial(100, 90)] * 2), 0.95)
    assert knee.as_json() == {
        "holds": {"rate": 2.0, "runs": 2, "requests": 200, "attainment": 0.99},
        "fails": {"rate": 2.1, "runs": 2, "requests": 200, "attainment": 0.9},
        "share": 0.95,
    }
