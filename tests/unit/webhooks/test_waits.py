"""When a delivery is tried again, and when it is given up."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from serve_app.config.settings import WebhookSettings
from serve_app.webhooks.policy import Policy

DAY_S = 24 * 3600
STEADY = replace(Policy(), jitter=0)


@pytest.fixture
def random() -> Random:
    return Random(7)


def waits(policy: Policy, random: Random) -> list[float | None]:
    """After each attempt that there can be."""
    return [policy.wait_s(attempt, None, random) for attempt in range(1, policy.most_attempts + 1)]


def test_the_waits_are_those_of_the_schedule_and_the_last_attempt_has_none(random: Random) -> None:
    assert waits(STEADY, random) == [5, 30, 120, 600, 3600, 6 * 3600, DAY_S, None]


def test_an_attempt_past_the_schedule_has_none_either(random: Random) -> None:
    assert STEADY.wait_s(100, None, random) is None


def test_without_a_schedule_the_first_attempt_is_the_last(random: Random) -> None:
    once = replace(STEADY, schedule_s=())
    assert (once.most_attempts, once.wait_s(1, 10, random)) == (1, None)


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_waits_differ_by_no_more_than_the_jitter_and_do_differ(random: Random, jitter: float) -> None:
    policy = Policy(schedule_s=(100,), jitter=jitter)
    drawn = [policy.wait_s(1, None, random) or 0 for _ in range(500)]
    assert 100 * (1 - jitter) <= min(drawn) < 100 - 80 * jitter
    assert 100 + 80 * jitter < max(drawn) <= 100 * (1 + jitter)


@pytest.mark.parametrize(
    ("wish_s", "wait_s"),
    [(None, 30), (0, 30), (29, 30), (31, 31), (DAY_S, DAY_S), (DAY_S + 1, DAY_S), (1e9, DAY_S)],
)
def test_a_receiver_can_put_a_try_off_by_up_to_a_day_and_never_forward(
    random: Random, wish_s: float | None, wait_s: float
) -> None:
    assert STEADY.wait_s(2, wish_s, random) == wait_s


def test_a_wish_adds_no_attempt(random: Random) -> None:
    assert STEADY.wait_s(STEADY.most_attempts, 60, random) is None


def test_a_delivery_may_get_older_than_all_its_attempts_take() -> None:
    policy = Policy(schedule_s=(10, 20), timeout_s=5)
    assert policy.most_attempts == 3
    assert policy.max_age_s == 1.5 * (10 + 20 + 3 * 5)


def test_the_policy_is_the_one_of_the_settings() -> None:
    assert Policy.of(WebhookSettings()) == Policy()
    own = WebhookSettings(schedule_s=(1, 2), jitter=0, timeout_s=3, per_receiver=4, trips_after=5, shut_s=6)
    assert Policy.of(own) == Policy(schedule_s=(1, 2), jitter=0, timeout_s=3, per_receiver=4, trips_after=5, shut_s=6)
