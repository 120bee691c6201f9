"""Who follows tasks: anybody may who knows an id, but not in the places of all others."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

_MOST_OF_ONE: Final = 32
"""Who follow one task in this process."""


class Watchers:
    """Waiting polls and streams of events. Half of what a replica works on at a time is left to everybody else."""

    def __init__(self, max_ongoing_requests: int) -> None:
        self._most = max(1, max_ongoing_requests // 2)
        self._all = 0
        self._of: Counter[str] = Counter()

    @contextlib.contextmanager
    def one_more(self, task_id: str) -> Iterator[bool]:
        """Whether there is room to wait; without, the task is to be told as it is now, and asked for again."""
        if self._of[task_id] >= _MOST_OF_ONE or self._all >= self._most:
            yield False
            return
        self._all += 1
        self._of[task_id] += 1
        try:
            yield True
        finally:
            self._all -= 1
            self._of[task_id] -= 1
            if not self._of[task_id]:
                del self._of[task_id]
