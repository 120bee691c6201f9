"""The retry schedule of webhooks."""

from __future__ import annotations

from random import Random

import pytest

from serve_app.config.settings import WebhookSettings
from serve_app.webhooks.policy import RetrySchedule

DAY_S = 24 * 3600


@pytest.fixture
def random() -> Random:
    return Random(7)


def schedule(**settings: object) -> RetrySchedule:
    return RetrySchedule.from_settings(WebhookSettings.model_validate({"jitter": 0, **settings}))


def test_waits_follow_the_schedule_and_the_last_attempt_has_none(random: Random) -> None:
    retries = schedule()
    waits = [retries.wait_s(attempt, None, random) for attempt in range(1, retries.max_attempts + 1)]
    assert waits == [5, 30, 120, 600, 3600, 6 * 3600, DAY_S, None]
    assert retries.wait_s(100, None, random) is None
    assert retries.wait_s(retries.max_attempts, 60, random) is None, "Retry-After adds no attempt"


def test_attempts_and_age_are_limited_by_the_schedule(random: Random) -> None:
    once = schedule(schedule_s=())
    assert (once.max_attempts, once.wait_s(1, 10, random)) == (1, None)
    twice = schedule(schedule_s=(10, 20), timeout_s=5)
    assert (twice.max_attempts, twice.max_age_s) == (3, 1.5 * (10 + 20 + 3 * 5))


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_waits_differ_by_at_most_the_jitter(random: Random, jitter: float) -> None:
    retries = schedule(schedule_s=(100,), jitter=jitter)
    waits = [retries.wait_s(1, None, random) or 0 for _ in range(500)]
    assert 100 * (1 - jitter) <= min(waits) < 100 - 80 * jitter
    assert 100 + 80 * jitter < max(waits) <= 100 * (1 + jitter)


@pytest.mark.parametrize(
    ("requested_s", "expected_s"),
    [(None, 30), (0, 30), (29, 30), (31, 31), (DAY_S, DAY_S), (DAY_S + 1, DAY_S), (1e9, DAY_S)],
)
def test_retry_after_postpones_by_a_day_at_most(random: Random, requested_s: float | None, expected_s: float) -> None:
    assert schedule().wait_s(2, requested_s, random) == expected_s
