"""One submitted job as its caller knows it: what it was told so far, and whether it will be told more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from deployments.contract.events import Done, Event, Failed, Interrupted, Progress
from deployments.contract.job import GenerationJob

PROGRESS_INTERVAL = 0.25
"""Seconds between two `Progress` events of a job, at least."""

log = logging.getLogger(__name__)


class Reached(Enum):
    """What a job has behind it."""

    ADMITTED = auto()
    ENCODED = auto()
    LAST_STEP = auto()
    FINISHING = auto()
    FINISHED = auto()


class RequestHandle:
    """What `Engine.submit` returns. Events go out one at a time; nothing follows the end."""

    def __init__(self, job: GenerationJob, emit: Callable[[Event], None], submitted: float) -> None:
        """`submitted` in seconds of the engine's clock."""
        self.job = job
        self.submitted = submitted
        self.device_s = 0.0
        """Seconds of the device that were spent on it: its share of what it did together with others."""
        self.reached: dict[Reached, float] = {}
        """When, in seconds of the engine's clock; for the spans of a job that is traced."""
        self._emit = emit
        self._ended = False
        self._fraction = 0.0
        self._progressed: float | None = None
        # Held while `emit` runs, so that `end` returns only when no event is on its way any more. Reentrant, since
        # `emit` may cancel its own job.
        self._lock = threading.RLock()

    @property
    def ended(self) -> bool:
        """Whether the last event is out, or the job was cancelled."""
        return self._ended

    def left(self, now: float) -> float | None:
        """Seconds until its time is over, `now` by the engine's clock; None without a limit, or before admission."""
        limit, admitted = self.job.seconds_left, self.reached.get(Reached.ADMITTED)
        return None if limit is None or admitted is None else limit - (now - admitted)

    def send(self, event: Event) -> None:
        with self._lock:
            if self._ended:
                return
            try:
                self._emit(event)
            except Exception:
                # Nobody listens any more: working on would only take the batch from others.
                log.exception("listener of job %s failed; the job is dropped", self.job.id)
                self._ended = True

    def progress(self, fraction: float, now: float, batch: int = 0, step_s: float = 0.0) -> None:
        """Sends `Progress`, unless the last was a moment ago or said as much; `now` by the engine's clock."""
        with self._lock:
            self.reached[Reached.LAST_STEP] = now
            if self._progressed is not None and now - self._progressed < PROGRESS_INTERVAL:
                return
            if fraction <= self._fraction:
                return
            self._progressed, self._fraction = now, min(fraction, 1.0)
            self.send(Progress(self._fraction, batch, step_s))

    def end(self, event: Done | Failed | Interrupted | None = None) -> None:
        """Sends the last event, or None to leave without one. Only the first call does anything."""
        with self._lock:
            if event is not None:
                self.send(replace(event, device_s=self.device_s))
            self._ended = True
