"""How long a step takes and how large a batch should be, learned from the steps themselves.

Two things bound a batch. *What pays*: the size grows from one, doubling, for as long as the time per picture still
falls by one per cent; after the first size that does not pay it stays, and now and then tries one more. *What fits*:
see `memory_limit`. The smaller bound holds. All of it is used from the engine's loop thread alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from statistics import median

from deployments.engine.memory_limit import PATIENCE, MemoryLimit

WINDOW = 5
"""Measurements kept per key and batch: the median forgets both a hiccup and a machine that has become slower."""

TRIALS = 3
"""Steps of a new size before it is judged, so that one slow first call (warm-up, compilation) decides nothing."""

GAIN = 0.99
"""A larger batch pays when its time per picture is at most this share of the smaller one's."""

MAX_KEYS = 4096
"""Keys remembered; past that the one unused for longest is forgotten and would be learned anew."""


class _Curve:
    """Seconds per step over batch size, for one key."""

    def __init__(self, max_batch: int) -> None:
        self.memory = MemoryLimit(max_batch)
        self._max_batch = max_batch
        self._seconds: dict[int, deque[float]] = {}
        self._paying = 1
        self._fallback = 0
        """The size that `_paying` still has to beat; 0 once it has, or when there is none."""
        self._full = 0
        self._doubling = True

    @property
    def limit(self) -> int:
        return min(self._paying, self.memory.size)

    def observe(self, batch: int, seconds: float) -> None:
        self.memory.fitted(batch)
        self._seconds.setdefault(batch, deque(maxlen=WINDOW)).append(seconds)
        if batch != self._paying:
            return
        self._full += 1
        if self._full < TRIALS:
            return
        if self._fallback and self._per_picture(batch) > GAIN * self._per_picture(self._fallback):
            self._settle(self._fallback, fallback=0)
            self._doubling = False
            return
        self._fallback = 0
        if batch < self._max_batch and (self._doubling or self._full >= PATIENCE):
            larger = min(2 * batch if self._doubling else batch + 1, self._max_batch)
            self._settle(larger, fallback=batch)

    def predict(self, batch: int) -> float | None:
        if batch in self._seconds:
            return median(self._seconds[batch])
        smaller = [size for size in self._seconds if size < batch]
        if smaller:
            return self._per_picture(max(smaller)) * batch
        return median(self._seconds[min(self._seconds)]) if self._seconds else None

    def _per_picture(self, batch: int) -> float:
        return median(self._seconds[batch]) / batch

    def _settle(self, size: int, *, fallback: int) -> None:
        self._paying, self._fallback, self._full = size, fallback, 0


class StepTimes:
    """Measured seconds per step by key and batch size, and the batch limit of each key."""

    def __init__(self, max_batch: int) -> None:
        """`max_batch` bounds every limit. Raises ValueError when it is below one."""
        if max_batch < 1:
            raise ValueError("max_batch must be at least one")
        self._max_batch = max_batch
        self._curves: dict[Hashable, _Curve] = {}

    def observe(self, key: Hashable, batch: int, seconds: float) -> None:
        """A step of `batch` states of `key` took `seconds`."""
        self._curve(key).observe(batch, seconds)

    def shrink(self, key: Hashable, batch: int) -> None:
        """A step of `batch` states of `key` ran out of memory: the limit becomes half of `batch`."""
        self._curve(key).memory.failed(batch)

    def limit(self, key: Hashable) -> int:
        """States of `key` that may take a step together now, 1 to `max_batch`; 1 for a key never seen."""
        curve = self._curves.get(key)
        return curve.limit if curve else 1

    def predict(self, key: Hashable, batch: int) -> float | None:
        """Seconds that a step of `batch` states of `key` takes; None for a key never measured.

        A size never measured is estimated from above: by the time per picture of the next smaller one, or by the
        whole time of the next larger one.
        """
        curve = self._curves.get(key)
        return curve.predict(batch) if curve else None

    def _curve(self, key: Hashable) -> _Curve:
        # Taken out and put back: a dict keeps its order, so the first is the one unused for longest.
        curve = self._curves.pop(key, None) or _Curve(self._max_batch)
        self._curves[key] = curve
        if len(self._curves) > MAX_KEYS:
            del self._curves[next(iter(self._curves))]
        return curve
