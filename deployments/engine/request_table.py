"""Which request is where in the engine: the one piece of state its threads and its callers share.

Every method takes the lock for itself and holds it for a moment only; no backend call and no event happens under it.
A request is in exactly one of waiting, encoding and active until it ends. Only the loop thread moves requests forward,
except that the finishing thread takes stepped ones and removes them.
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
from deployments.engine.request_handle import RequestHandle


class Stage(Enum):
    STEPPING = auto()
    STEPPED = auto()
    """All steps done, waits for the finishing thread."""
    FINISHING = auto()
    FINISH_RETRY = auto()
    """Finishing ran out of memory beside a running step: the loop thread tries once more between two steps."""


@dataclass(slots=True, eq=False)
class ActiveRequest(Generic[S]):
    """An admitted and encoded job, and its picture."""

    handle: RequestHandle
    state: S
    stage: Stage = Stage.STEPPING

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def submitted(self) -> float:
        return self.handle.submitted


class RequestTable(Generic[S]):
    def __init__(self) -> None:
        self._waiting: deque[RequestHandle] = deque()
        self._encoding: list[RequestHandle] = []
        self._active: list[ActiveRequest[S]] = []
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
    def running(self) -> int:
        """Requests admitted and not ended."""
        with self._condition:
            return len(self._encoding) + len(self._active)

    def add(self, handle: RequestHandle) -> None:
        """Raises RuntimeError once closed."""
        with self._condition:
            if self._closed:
                raise RuntimeError("the engine is stopped")
            self._waiting.append(handle)
            self._notify()

    def close(self) -> list[RequestHandle]:
        """Nothing is added any more, and sleepers wake. Returns all that have not ended."""
        with self._condition:
            self._closed = True
            self._notify()
        return self.handles()

    def handles(self) -> list[RequestHandle]:
        """Of all that have not ended."""
        with self._condition:
            return [*self._waiting, *self._encoding, *(request.handle for request in self._active)]

    def admit(self, *, max_running: int, at_most: int) -> list[RequestHandle]:
        """Moves those that may join now from waiting to encoding; see `policy.admit`."""
        with self._condition:
            self._encoding = admit(self._waiting, self._active, max_running=max_running, at_most=at_most)
            for _ in self._encoding:
                self._waiting.popleft()
            return list(self._encoding)

    def encoded(self, requests: list[ActiveRequest[S]]) -> None:
        """Ends encoding: what came of it becomes active, unless cancelled meanwhile."""
        with self._condition:
            self._encoding = []
            self._active += [request for request in requests if not request.handle.ended]
            self._notify()

    def stepping(self) -> list[ActiveRequest[S]]:
        with self._condition:
            return [request for request in self._active if request.stage is Stage.STEPPING]

    def unfinished(self) -> list[RequestHandle]:
        """Requests that still need the loop thread for more than a finish."""
        with self._condition:
            stepping = (request.handle for request in self._active if request.stage is Stage.STEPPING)
            return [*self._waiting, *self._encoding, *stepping]

    def move(self, request: ActiveRequest[S], stage: Stage) -> None:
        with self._condition:
            request.stage = stage
            self._notify()

    def take(self, stage: Stage) -> ActiveRequest[S] | None:
        """The first active request of `stage`, now in finishing."""
        with self._condition:
            ready = (request for request in self._active if request.stage is stage and not request.handle.ended)
            request = next(ready, None)
            if request is not None:
                request.stage = Stage.FINISHING
            return request

    def remove(self, request: ActiveRequest[S]) -> None:
        with self._condition:
            self._active = [other for other in self._active if other is not request]
            self._notify()

    def drop_ended(self) -> None:
        """Forgets ended requests. One being finished still takes its memory, and leaves when that call returns."""
        with self._condition:
            waiting = deque(handle for handle in self._waiting if not handle.ended)
            active = [
                request for request in self._active if request.stage is Stage.FINISHING or not request.handle.ended
            ]
            if len(waiting) < len(self._waiting) or len(active) < len(self._active):
                self._waiting, self._active = waiting, active
                self._notify()

    def wait_for(self, reason: Callable[[], bool]) -> None:
        """Sleeps until `reason` holds or the table is closed. `reason` is called with the lock held."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or reason())

    def _notify(self) -> None:
        self._changes += 1
        self._condition.notify_all()
