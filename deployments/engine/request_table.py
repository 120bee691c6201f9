"""Who is where in the engine: the one piece of state its threads and its callers share.

Every method takes the lock for itself and holds it for a moment only; no backend call and no event happens under it.
A job is in exactly one of waiting, encoding and the runs until it ends. Only the loop thread moves jobs forward, except
that the finishing thread takes stepped runs and removes them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic

from deployments.contract.job import GenerationJob
from deployments.engine.backend import S
from deployments.engine.policy import admit
from deployments.engine.request_handle import Ticket


class Stage(Enum):
    STEPPING = auto()
    STEPPED = auto()
    """All steps done, waits for the finishing thread."""
    FINISHING = auto()
    CRAMPED = auto()
    """Finishing did not fit beside a running step: the loop thread tries once more between two steps."""


@dataclass(slots=True, eq=False)
class Run(Generic[S]):
    """An admitted job and its picture."""

    ticket: Ticket
    state: S
    stage: Stage = Stage.STEPPING

    @property
    def job(self) -> GenerationJob:
        return self.ticket.job

    @property
    def submitted(self) -> float:
        return self.ticket.submitted


class Roster(Generic[S]):
    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._encoding: list[Ticket] = []
        self._runs: list[Run[S]] = []
        self._condition = threading.Condition()
        self._changes = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def changes(self) -> int:
        """Grows with everything that may give a sleeping thread something to do."""
        return self._changes

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Jobs admitted and not ended."""
        with self._condition:
            return len(self._encoding) + len(self._runs)

    def add(self, ticket: Ticket) -> None:
        """Raises RuntimeError once closed."""
        with self._condition:
            if self._closed:
                raise RuntimeError("the engine is stopped")
            self._waiting.append(ticket)
            self._notify()

    def close(self) -> list[Ticket]:
        """Nothing is added any more, and sleepers wake. Returns all that have not ended."""
        with self._condition:
            self._closed = True
            self._notify()
            return [*self._waiting, *self._encoding, *(run.ticket for run in self._runs)]

    def admit(self, *, max_running: int, at_most: int) -> list[Ticket]:
        """Moves those that may join now from waiting to encoding; see `policy.admit`."""
        with self._condition:
            self._encoding = admit(self._waiting, self._runs, max_running=max_running, at_most=at_most)
            for _ in self._encoding:
                self._waiting.popleft()
            return list(self._encoding)

    def encoded(self, runs: list[Run[S]]) -> None:
        """Ends encoding: what came of it joins the runs, unless cancelled meanwhile."""
        with self._condition:
            self._encoding = []
            self._runs += [run for run in runs if not run.ticket.ended]
            self._notify()

    def stepping(self) -> list[Run[S]]:
        with self._condition:
            return [run for run in self._runs if run.stage is Stage.STEPPING]

    def unfinished(self) -> list[Ticket]:
        """Jobs that still need the loop thread for more than a finish."""
        with self._condition:
            stepping = (run.ticket for run in self._runs if run.stage is Stage.STEPPING)
            return [*self._waiting, *self._encoding, *stepping]

    def move(self, run: Run[S], stage: Stage) -> None:
        with self._condition:
            run.stage = stage
            self._notify()

    def take(self, stage: Stage) -> Run[S] | None:
        """The first run of `stage`, now in finishing."""
        with self._condition:
            run = next((run for run in self._runs if run.stage is stage and not run.ticket.ended), None)
            if run is not None:
                run.stage = Stage.FINISHING
            return run

    def remove(self, run: Run[S]) -> None:
        with self._condition:
            self._runs = [other for other in self._runs if other is not run]
            self._notify()

    def drop_ended(self) -> None:
        """Forgets ended jobs. One being finished still takes its memory, and leaves when that call returns."""
        with self._condition:
            waiting = deque(ticket for ticket in self._waiting if not ticket.ended)
            runs = [run for run in self._runs if run.stage is Stage.FINISHING or not run.ticket.ended]
            if len(waiting) < len(self._waiting) or len(runs) < len(self._runs):
                self._waiting, self._runs = waiting, runs
                self._notify()

    def wait_for(self, reason: Callable[[], bool]) -> None:
        """Sleeps until `reason` holds or the roster is closed. `reason` is called with the lock held."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or reason())

    def _notify(self) -> None:
        self._changes += 1
        self._condition.notify_all()
