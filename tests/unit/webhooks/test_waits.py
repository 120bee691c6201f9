"""When a delivery is tried again, and when it is given up."""

from __future__ import annotations

from random import Random

import pytest

from serve_app.config.settings import WebhookSettings
from serve_app.webhooks.outbox import max_age_s, max_attempts, wait_s

DAY_S = 24 * 3600
STEADY = WebhookSettings(jitter=0)


@pytest.fixture
def random() -> Random:
    return Random(7)


def waits(policy: WebhookSettings, random: Random) -> list[float | None]:
    """After each attempt that there can be."""
    return [wait_s(policy, attempt, None, random) for attempt in range(1, max_attempts(policy) + 1)]


def test_the_waits_are_those_of_the_schedule_and_the_last_attempt_has_none(random: Random) -> None:
    assert waits(STEADY, random) == [5, 30, 120, 600, 3600, 6 * 3600, DAY_S, None]


def test_an_attempt_past_the_schedule_has_none_either(random: Random) -> None:
    assert wait_s(STEADY, 100, None, random) is None


def test_without_a_schedule_the_first_attempt_is_the_last(random: Random) -> None:
    once = WebhookSettings(schedule_s=())
    assert (max_attempts(once), wait_s(once, 1, 10, random)) == (1, None)


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_waits_differ_by_no_more_than_the_jitter_and_do_differ(random: Random, jitter: float) -> None:
    policy = WebhookSettings(schedule_s=(100,), jitter=jitter)
    drawn = [wait_s(policy, 1, None, random) or 0 for _ in range(500)]
    assert 100 * (1 - jitter) <= min(drawn) < 100 - 80 * jitter
    assert 100 + 80 * jitter < max(drawn) <= 100 * (1 + jitter)


@pytest.mark.parametrize(
    ("wish_s", "expected_s"),
    [(None, 30), (0, 30), (29, 30), (31, 31), (DAY_S, DAY_S), (DAY_S + 1, DAY_S), (1e9, DAY_S)],
)
def test_a_receiver_can_put_a_try_off_by_up_to_a_day_and_never_forward(
    random: Random, wish_s: float | None, expected_s: float
) -> None:
    assert wait_s(STEADY, 2, wish_s, random) == expected_s


def test_a_wish_adds_no_attempt(random: Random) -> None:
    assert wait_s(STEADY, max_attempts(STEADY), 60, random) is None


def test_a_delivery_may_get_older_than_all_its_attempts_take() -> None:
    policy = WebhookSettings(schedule_s=(10, 20), timeout_s=5)
    assert max_attempts(policy) == 3
    assert max_age_s(policy) == 1.5 * (10 + 20 + 3 * 5)
