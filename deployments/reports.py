"""What a replica tells of its work, with one of its jobs now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from deployments.contract.counts import ATTENTION_FALLBACKS, BUSY_S, COMPILE_FALLBACKS, LOAD_S, LOADS
from deployments.contract.events import Alive

EVERY_S: Final = 1.0


class Counting(Protocol):
    @property
    def setup(self) -> Mapping[str, str]: ...
    @property
    def counts(self) -> Mapping[str, float]: ...


class Reports:
    """Used from one thread alone. What is in a report that got lost on its way is lost: figures, no accounts."""

    def __init__(self, engine: Counting, load_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`load_s` is how long the model took to load, which the first report tells."""
        self._engine = engine
        self._clock = clock
        self._jobs = 0
        self._since = 0.0
        self._busy_s = 0.0
        setup = engine.setup
        self._loaded = {
            LOADS: 1.0,
            LOAD_S: load_s,
            COMPILE_FALLBACKS: float(setup.get("compiled") == "failed"),
            ATTENTION_FALLBACKS: float(len(setup.get("attention_unusable", "").split())),
        }
        self._told: Mapping[str, float] = engine.counts  # of trying the model, which was no job's
        self._told_at = -EVERY_S

    def began(self) -> None:
        """A job came."""
        if not self._jobs:
            self._since = self._clock()
        self._jobs += 1

    def ended(self) -> None:
        """A job left."""
        self._jobs -= 1
        if not self._jobs:
            self._busy_s += self._clock() - self._since

    def due(self) -> Alive | None:
        """What is to be told with a job that ends now: at most once a second, but always with the last job there is."""
        now = self._clock()
        if self._jobs > 1 and now - self._told_at < EVERY_S:
            return None
        busy_s = self._busy_s + (now - self._since if self._jobs else 0.0)
        counts = {**self._engine.counts, **self._loaded, BUSY_S: busy_s}
        grown = {name: count - self._told.get(name, 0) for name, count in counts.items()}
        self._told, self._told_at = counts, now
        return Alive({name: count for name, count in grown.items() if count}, self._engine.setup)
