"""Steps and other work run beside each other on one device, unless something asks to have it alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Exclusive:
    """Who waits to be alone goes before the next step, so that a stream of steps can't keep it out."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._stepping = False
        self._alone = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Within it a step runs; one thread takes steps."""
        with self._condition:
            self._condition.wait_for(lambda: not self._alone)
            self._stepping = True
        try:
            yield
        finally:
            with self._condition:
                self._stepping = False
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it no step runs."""
        with self._condition:
            self._alone += 1
            self._condition.wait_for(lambda: not self._stepping)
        try:
            yield
        finally:
            with self._condition:
                self._alone -= 1
                self._condition.notify_all()
