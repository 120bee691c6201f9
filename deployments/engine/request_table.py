"""Which request is where in the engine: the one piece of state its threads and its callers share.

Every method takes the lock for itself and holds it for a moment only; no backend call and no event happens under it.
A request is in exactly one of waiting, encoding, active and storing until it ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Generic

from deployments.contract.job import GenerationJob
from deployments.engine.backend import P, S
from deployments.engine.policy import admit
from deployments.engine.request_handle import RequestHandle


class Stage(Enum):
    STEPPING = auto()
    STEPPED = auto()
    """All steps done, waits for the finishing thread."""
    FINISHING = auto()


@dataclass(slots=True, eq=False)
class WaitingRequest(Generic[P]):
    """Not admitted yet."""

    handle: RequestHandle
    asked_for: bool = False
    """Somebody fetches, or has fetched, what the job needs."""
    prepared: P | None = None

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def fetched(self) -> bool:
        return self.prepared is not None


@dataclass(slots=True, eq=False)
class ActiveRequest(Generic[S]):
    """An admitted and encoded job, and its picture."""

    handle: RequestHandle
    state: S
    stage: Stage = Stage.STEPPING
    previewing: bool = False
    """A preview is on its way to the store."""
    previewed: float | None = None
    """When the last one was made, by the engine's clock."""
    shown_steps: int = 0
    """How many were done then."""

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def submitted(self) -> float:
        return self.handle.submitted


class RequestTable(Generic[P, S]):
    def __init__(self) -> None:
        self._waiting: deque[WaitingRequest[P]] = deque()
        self._encoding: list[WaitingRequest[P]] = []
        self._active: list[ActiveRequest[S]] = []
        self._storing: list[RequestHandle] = []
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
            return len(self._encoding) + len(self._active) + len(self._storing)

    def add(self, handle: RequestHandle) -> None:
        """Raises RuntimeError once closed."""
        with self._condition:
            if self._closed:
                raise RuntimeError("the engine is stopped")
            self._waiting.append(WaitingRequest(handle))
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
            requests = (*self._waiting, *self._encoding, *self._active)
            return [*(request.handle for request in requests), *self._storing]

    def to_fetch(self, ahead: int) -> list[WaitingRequest[P]]:
        """Those of the first `ahead` waiting that nobody was asked to fetch for: now somebody is."""
        with self._condition:
            found = [request for request in islice(self._waiting, ahead) if not request.asked_for]
            for request in found:
                request.asked_for = True
            return found

    def fetched(self, request: WaitingRequest[P], prepared: P) -> None:
        with self._condition:
            request.prepared = prepared
            self._notify()

    def admit(self, *, max_running: int, at_most: int) -> list[WaitingRequest[P]]:
        """Moves those that may join now from waiting to encoding, `at_most` at once and `max_running` in all; see
        `policy.admit`. What only has to be stored runs no longer."""
        with self._condition:
            active = [*(request.job for request in self._active), *(handle.job for handle in self._storing)]
            room = min(at_most, max_running - len(self._active))
            self._encoding = admit(self._waiting, active, room=room)
            for request in self._encoding:
                self._waiting.remove(request)
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
        """Of requests that still need more than a finish."""
        with self._condition:
            stepping = (request for request in self._active if request.stage is Stage.STEPPING)
            return [request.handle for request in (*self._waiting, *self._encoding, *stepping)]

    def move(self, request: ActiveRequest[S], stage: Stage) -> None:
        with self._condition:
            request.stage = stage
            self._notify()

    def to_finish(self, max_storing: int) -> ActiveRequest[S] | None:
        """The first with all steps done, now in finishing; None as long as so many are being stored."""
        with self._condition:
            if len(self._storing) >= max_storing:
                return None
            ready = (one for one in self._active if one.stage is Stage.STEPPED and not one.handle.ended)
            request = next(ready, None)
            if request is not None:
                request.stage = Stage.FINISHING
            return request

    def remove(self, request: ActiveRequest[S]) -> None:
        with self._condition:
            self._active = [other for other in self._active if other is not request]
            self._notify()

    def storing(self, request: ActiveRequest[S]) -> None:
        """The request is made, and needs the device no longer."""
        with self._condition:
            self._storing.append(request.handle)
            self.remove(request)

    def stored(self, handle: RequestHandle) -> None:
        with self._condition:
            self._storing.remove(handle)
            self._notify()

    def drop_ended(self) -> None:
        """Forgets ended requests. One being finished or stored still takes its memory, and leaves when that call
        returns."""
        with self._condition:
            waiting = deque(request for request in self._waiting if not request.handle.ended)
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
