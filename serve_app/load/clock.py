"""Seconds after the start of a run, the same in all of its processes."""

from __future__ import annotations

import time


class Clock:
    def __init__(self, epoch: float) -> None:
        """`epoch`: the start, in epoch seconds; it may be still to come."""
        self.epoch = epoch
        # Steps of the machine's clock during the run change nothing.
        self._zero = time.monotonic() + (epoch - time.time())

    def now(self) -> float:
        return time.monotonic() - self._zero

    def of_epoch(self, told: object) -> float | None:
        """A moment that a server told, in epoch seconds; None where it is no such thing."""
        if isinstance(told, bool) or not isinstance(told, int | float):
            return None
        return float(told) - self.epoch
