"""What the task store enforces, and how it says no."""

from __future__ import annotations

from dataclasses import dataclass


class QueueFull(Exception):
    """The lane holds as many waiting tasks as it may."""


class TooManyActive(Exception):
    """The project has as many unfinished tasks as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class IdempotencyMismatch(Exception):
    """The idempotency key was used before, with another body."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the store enforces. Times in seconds."""

    max_ready: int = 10_000
    """Waiting tasks per lane."""
    max_active: int = 24
    """Unfinished tasks per project."""
    queue_s: float = 24 * 3600
    """From submission to start of work."""
    run_s: float = 15 * 60
    """From the first start of work to the end, all attempts together."""
    retention_s: float = 24 * 3600
    """How long an ended task and its objects are kept."""
    idempotency_s: float = 24 * 3600
    lease_s: float = 10.0
    max_strikes: int = 3
    max_losses: int = 8
    max_isolated: int = 1
    """Suspects in flight per lane."""
