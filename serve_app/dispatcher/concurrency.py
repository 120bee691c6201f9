"""Concurrency limit of one queue in one dispatcher: how many tasks to lease, and when to call the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeAlias

AttemptKey: TypeAlias = tuple[str, int]
"""Task id and attempt number."""

_MIN_ELAPSED_S: Final = 1.0
"""Assumed minimum of a run's time until the first run ends: models begin with whole batches at once."""
_MIN_RUN_S: Final = 0.001
_NEWEST_WEIGHT: Final = 0.2
"""Weight of the newest sample in the mean preparation and run times."""
_INITIAL_FACTOR: Final = 4
"""Tasks prepared at once while the start rate is unknown, as a multiple of the headroom."""
_LOOKAHEAD: Final = 2
"""Multiple of the number that Little's law gives: the start rate only grows if more than that are prepared."""


class ConcurrencyLimiter:
    """Counts the attempts of one queue in one process, from lease to end.

    `headroom` limits the calls that the model has not begun with. `max_preparing` limits the tasks in preparation,
    whatever the start rate.
    """

    def __init__(self, headroom: int, max_preparing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.closed = asyncio.Event()
        """Set once the dispatcher drains: no further call may begin."""
        self.capacity_freed: asyncio.Event | None = None
        """Event to set when capacity grows; None while nothing waits for it."""
        self._headroom = headroom
        self._max_preparing = max_preparing
        self._clock = clock
        self._preparing: dict[AttemptKey, float] = {}
        self._waiting: dict[AttemptKey, asyncio.Event] = {}
        self._starting: set[AttemptKey] = set()
        self._running: dict[AttemptKey, float] = {}
        self._preparing_s = 0.0
        self._running_s: float | None = None

    def capacity(self) -> int:
        """Returns the number of tasks to lease now; zero or less for none."""
        lookahead = self._lookahead()
        backlog = len(self._waiting) + len(self._starting) - self._headroom
        preparing = min(max(_INITIAL_FACTOR * self._headroom, lookahead), self._max_preparing) - len(self._preparing)
        return min(lookahead - backlog, preparing - max(0, backlog))

    def admit(self, key: AttemptKey) -> None:
        """Counts a leased attempt as in preparation."""
        self._preparing[key] = self._clock()

    async def acquire(self, key: AttemptKey) -> None:
        """Ends the preparation and waits until the model may be called, in the order of preparation's end.

        Returns at once when the limiter is closed.
        """
        took_s = self._clock() - self._preparing.pop(key)
        self._preparing_s += _NEWEST_WEIGHT * (took_s - self._preparing_s)
        slot = self._waiting[key] = asyncio.Event()
        self._grant_slots()
        await slot.wait()

    def mark_started(self, key: AttemptKey) -> None:
        """Counts the attempt as running: its model has begun."""
        self._running[key] = self._clock()
        self._free_capacity(key)

    def release(self, key: AttemptKey) -> None:
        """Forgets the attempt. Idempotent."""
        started_at = self._running.pop(key, None)
        if started_at is not None:
            took_s = self._clock() - started_at
            mean_s = took_s if self._running_s is None else self._running_s
            self._running_s = mean_s + _NEWEST_WEIGHT * (took_s - mean_s)
        self._preparing.pop(key, None)
        self._waiting.pop(key, None)
        self._free_capacity(key)

    def close(self) -> None:
        """Lets every waiting attempt go on, which then finds the limiter closed."""
        self.closed.set()
        self._grant_slots()

    def _grant_slots(self) -> None:
        while self._waiting and (len(self._starting) < self._headroom or self.closed.is_set()):
            key = next(iter(self._waiting))
            self._starting.add(key)
            self._waiting.pop(key).set()

    def _free_capacity(self, key: AttemptKey) -> None:
        self._starting.discard(key)
        self._grant_slots()
        if self.capacity_freed is not None:
            self.capacity_freed.set()

    def _lookahead(self) -> int:
        """Returns twice the number of starts expected while a task leased now is prepared."""
        starts_per_s = 0.0
        if self._running:
            if self._running_s is not None:
                run_s = max(self._running_s, _MIN_RUN_S)
            else:
                run_s = max(self._clock() - next(iter(self._running.values())), _MIN_ELAPSED_S)
            starts_per_s = len(self._running) / run_s
        return min(round(_LOOKAHEAD * starts_per_s * self._preparing_s), self._max_preparing)
