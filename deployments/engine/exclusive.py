"""Steps and other work run beside each other on one device, unless something asks to have it alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Exclusive:
    """Who waits to be alone goes before what comes next, so that a stream of steps, or of other work, can't keep it
    out."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._stepping = False
        self._solitary = False
        """A step waits for the device alone, or has it."""
        self._accompanied = False
        """Whether other work ran beside the step at any time."""
        self._beside = 0
        self._alone = 0

    @contextmanager
    def step(self, *, alone: bool = False) -> Iterator[Callable[[], bool]]:
        """Within it a step runs, `alone` without any other work; one thread takes steps. Gives whether there was some
        beside it so far."""
        with self._condition:
            self._solitary = alone
            self._condition.wait_for(lambda: not self._alone and not (alone and self._beside))
            self._stepping, self._accompanied = True, self._beside > 0
        try:
            yield lambda: self._accompanied
        finally:
            with self._condition:
                self._stepping = self._solitary = False
                self._condition.notify_all()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Within it work runs that steps may run beside."""
        with self._condition:
            self._condition.wait_for(lambda: not self._solitary)
            self._beside += 1
            self._accompanied = True
        try:
            yield
        finally:
            with self._condition:
                self._beside -= 1
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
