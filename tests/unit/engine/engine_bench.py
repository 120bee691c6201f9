"""Engines on virtual backends, driven by hand or by their own threads."""

from __future__ import annotations

import threading
from typing import Any

from support.jobs import make_job
from support.virtual_backend import Listener, VirtualBackend, VirtualState

from deployments.contract.events import LAST, Done, Event
from deployments.contract.job import GenerationJob
from deployments.engine.loop import Engine
from deployments.engine.requests import RequestHandle

WAIT = 60.0
"""Seconds before a threaded test fails."""
BOUNDS: dict[str, Any] = {"max_running": 16, "max_batch": 8}


class Bench:
    """An engine on a virtual clock, and the events of its jobs."""

    def __init__(self, backend: VirtualBackend, **options: Any) -> None:
        self.backend = backend
        self.listeners: dict[str, Listener] = {}
        self.handles: dict[str, RequestHandle] = {}
        self.engine: Engine[GenerationJob, VirtualState] = Engine(backend, **BOUNDS | options, clock=backend.clock)

    def submit(self, *jobs: GenerationJob) -> None:
        for job in jobs:
            self.listeners[job.id] = Listener()
            self.handles[job.id] = self.engine.submit(job, self.listeners[job.id])

    def run(self, *jobs: GenerationJob) -> None:
        self.submit(*jobs)
        self.engine.run_until_idle()
        assert (self.engine.running, self.engine.waiting, self.engine.health.busy_since) == (0, 0, None)

    def learn(self, size: int = 64, steps: int = 40) -> None:
        """Runs jobs until the batch limit of `size` is stable, and clears the recorded calls."""
        self.run(*(make_job(f"learn-{n}", size=size, steps=steps) for n in range(8)))
        self.backend.calls.clear()
        self.listeners.clear()

    def last(self, name: str) -> Event:
        assert sum(isinstance(event, LAST) for event in self.listeners[name].events) == 1
        return self.listeners[name].events[-1]

    def done(self) -> set[str]:
        return {name for name in self.listeners if isinstance(self.last(name), Done)}


class Threaded:
    """An engine with its own threads, and the events of its jobs."""

    def __init__(self, backend: VirtualBackend, **options: Any) -> None:
        self.engine: Engine[GenerationJob, VirtualState] = Engine(backend, **BOUNDS | options)
        self.engine.start()
        self.listeners: dict[str, Listener] = {}
        self._ended = threading.Semaphore(0)

    def submit(self, *jobs: GenerationJob) -> list[RequestHandle]:
        return [self._submit(job) for job in jobs]

    def _submit(self, job: GenerationJob) -> RequestHandle:
        listener = self.listeners[job.id] = Listener()

        def emit(event: Event) -> None:
            listener(event)
            if isinstance(event, LAST):
                self._ended.release()

        return self.engine.submit(job, emit)

    def await_ends(self, count: int) -> None:
        for _ in range(count):
            assert self._ended.acquire(timeout=WAIT), "a job did not end"

    def last(self, name: str) -> Event:
        return self.listeners[name].events[-1]

    def stop(self) -> None:
        assert self.engine.stop(WAIT)
