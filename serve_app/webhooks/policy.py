"""When a delivery is tried, and when one is given up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

from serve_app.config.settings import WebhookSettings

_LONGEST_WISH_S = 24 * 3600
"""How long a receiver may put a delivery off at a time."""
_AGE = 1.5
"""Times the whole schedule: how old a delivery may get whose receiver has no time for it."""


@dataclass(frozen=True, slots=True)
class Policy:
    schedule_s: tuple[float, ...] = (5, 30, 120, 600, 3600, 6 * 3600, 24 * 3600)
    """The waits after the first, second, ... failed attempt; one more failure is the end."""
    jitter: float = 0.1
    """Waits differ by up to this part of them, so that what failed together is not repeated together."""
    timeout_s: float = 15.0
    """For a receiver to be connected to and to answer."""
    claim_s: float = 10.0
    """How long a sender that stopped answering keeps its deliveries."""
    concurrency: int = 256
    """Calls of one sender at a time."""
    per_receiver: int = 8
    """Calls of all senders at a time to one receiver."""
    per_organization: int = 128
    """Calls of all senders at a time for one organization."""
    trips_after: int = 10
    """Failures in a row after which a receiver is left alone for a while."""
    shut_s: float = 30.0
    """That while, the first time; it doubles each time that the receiver turns out not to be back."""
    most_shut_s: float = 600.0

    @classmethod
    def of(cls, settings: WebhookSettings) -> Policy:
        return cls(**settings.model_dump(include={part.name for part in fields(cls)}))

    @property
    def most_attempts(self) -> int:
        return len(self.schedule_s) + 1

    @property
    def max_age_s(self) -> float:
        return _AGE * (sum(self.schedule_s) + self.timeout_s * self.most_attempts)

    def wait_s(self, attempt: int, retry_after_s: float | None, random: Random) -> float | None:
        """How long to wait after the failed attempt of this number, from 1; None: that was the last one."""
        if attempt > len(self.schedule_s):
            return None
        planned = self.schedule_s[attempt - 1]
        wait = planned * (1 + self.jitter * random.uniform(-1, 1))
        return max(wait, min(retry_after_s or 0, _LONGEST_WISH_S))
