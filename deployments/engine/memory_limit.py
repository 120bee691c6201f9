"""How large a batch fits into memory: running out of it halves the size, and it grows back by one after a run of full
batches."""

from __future__ import annotations

from collections import Counter

PATIENCE = 200
"""Full batches after which one picture more is tried again."""


class MemoryLimit:
    """The largest batch believed to fit into memory, found by failing.

    Starts at `ceiling`. A size that failed twice is not tried again, so a size at the very edge costs two failures
    in all and not one every `PATIENCE` batches.
    """

    def __init__(self, ceiling: int) -> None:
        """Raises ValueError for a ceiling below one."""
        if ceiling < 1:
            raise ValueError("a batch holds at least one picture")
        self.size = ceiling
        self._ceiling = ceiling
        self._failures: Counter[int] = Counter()
        self._full = 0

    def fitted(self, batch: int) -> None:
        if batch < self.size:
            return
        self._full += 1
        if self._full >= PATIENCE:
            self._full = 0
            self.size = min(self.size + 1, self._ceiling)

    def failed(self, batch: int) -> None:
        """A picture that fails alone changes nothing: no size of batch would have helped it."""
        if batch == 1:
            return
        self._failures[batch] += 1
        if self._failures[batch] > 1:
            self._ceiling = min(self._ceiling, batch - 1)
        # Halved from the size that failed, which may have been a batch that was not full.
        self.size = min(self._ceiling, batch // 2)
        self._full = 0
