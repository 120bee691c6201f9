"""Policy of webhook deliveries: when a failed one is retried, and when a destination is left alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from serve_app.config.settings import WebhookSettings
from serve_app.storage.scripts import milliseconds

_MAX_RETRY_AFTER_S: Final = 24 * 3600
"""Seconds by which a destination may postpone a delivery at a time."""
_MAX_AGE_FACTOR: Final = 1.5
"""Age in whole schedules at which a delivery fails whose destination never had time for it."""


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    waits_s: tuple[float, ...]
    """Seconds between an attempt and the next."""
    jitter: float
    """Fraction by which a wait differs, so that what failed together is not repeated together."""
    timeout_s: float
    """Seconds that one attempt may take."""

    @classmethod
    def from_settings(cls, settings: WebhookSettings) -> RetrySchedule:
        return cls(settings.schedule_s, settings.jitter, settings.timeout_s)

    @property
    def max_attempts(self) -> int:
        return len(self.waits_s) + 1

    @property
    def max_age_s(self) -> float:
        return _MAX_AGE_FACTOR * (sum(self.waits_s) + self.timeout_s * self.max_attempts)

    def wait_s(self, attempt: int, retry_after_s: float | None, random: Random) -> float | None:
        """Returns the seconds to wait after a failed attempt, counted from 1; None after the last one."""
        if attempt > len(self.waits_s):
            return None
        wait_s = self.waits_s[attempt - 1] * (1 + self.jitter * random.uniform(-1, 1))
        return max(wait_s, min(retry_after_s or 0, _MAX_RETRY_AFTER_S))


@dataclass(frozen=True, slots=True)
class CircuitPolicy:
    """Limits of calls at a time, and the circuit breaker of a destination, as the scripts take them."""

    per_destination: int
    per_organization: int
    failure_threshold: int
    """Failures in a row that open the circuit."""
    open_ms: int
    """Milliseconds for which it is open; twice as long each time it is opened again."""
    max_open_ms: int

    @classmethod
    def from_settings(cls, settings: WebhookSettings) -> CircuitPolicy:
        return cls(
            settings.per_destination,
            settings.per_organization,
            settings.failure_threshold,
            milliseconds(settings.circuit_open_s),
            milliseconds(settings.max_circuit_open_s),
        )
