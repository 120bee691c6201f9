"""A clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Replaces the module `time`. Seconds pass only when a test sets `now` or code sleeps."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
