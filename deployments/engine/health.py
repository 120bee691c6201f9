"""How the engine is doing, for those who decide whether to keep it: is it stuck, or failing everything?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum


class Worker(IntEnum):
    STEPS = 0
    FINISH = 1


class Health:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: list[float | None] = [None for _ in Worker]
        self._faults = 0

    @property
    def busy_since(self) -> float | None:
        """When the longest backend call now in progress began, by the engine's clock; None when there is none."""
        return min((began for began in list(self._calls) if began is not None), default=None)

    @property
    def faults(self) -> int:
        """Jobs in a row that ended on an unexpected error. Many mean that the device is broken, not the jobs."""
        return self._faults

    @contextmanager
    def call(self, worker: Worker) -> Iterator[None]:
        """Notes that `worker` is inside the backend."""
        self._calls[worker] = self._clock()
        try:
            yield
        finally:
            self._calls[worker] = None

    def succeeded(self) -> None:
        self._faults = 0

    def faulted(self) -> None:
        self._faults += 1
