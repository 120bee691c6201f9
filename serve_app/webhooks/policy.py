"""When a delivery is tried, and when one is given up."""

from __future__ import annotations

from random import Random

from serve_app.config.settings import WebhookSettings

_LONGEST_WISH_S = 24 * 3600
"""How long a receiver may put a delivery off at a time."""
_AGE = 1.5
"""Times the whole schedule: how old a delivery may get whose receiver has no time for it."""


def max_attempts(settings: WebhookSettings) -> int:
    return len(settings.schedule_s) + 1


def max_age_s(settings: WebhookSettings) -> float:
    return _AGE * (sum(settings.schedule_s) + settings.timeout_s * max_attempts(settings))


def wait_s(settings: WebhookSettings, attempt: int, retry_after_s: float | None, random: Random) -> float | None:
    """How long to wait after the failed attempt of this number, from 1; None: that was the last one.

    Waits differ by up to `jitter` of them, so that what failed together is not repeated together.
    """
    if attempt > len(settings.schedule_s):
        return None
    wait = settings.schedule_s[attempt - 1] * (1 + settings.jitter * random.uniform(-1, 1))
    return max(wait, min(retry_after_s or 0, _LONGEST_WISH_S))
