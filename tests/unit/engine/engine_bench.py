"""What the engine tests share."""

from __future__ import annotations

from support.jobs import make_job
from support.virtual_backend import Listener, VirtualBackend, VirtualState

from deployments.contract.events import LAST, Done, Event
from deployments.contract.job import GenerationJob
from deployments.engine.device import DevicePriority
from deployments.engine.loop import Engine
from deployments.engine.requests import RequestHandle


class Bench:
    """An engine on a virtual clock, and what its jobs were told."""

    def __init__(
        self,
        backend: VirtualBackend,
        *,
        max_running: int = 16,
        max_batch: int = 8,
        preview_every: float | None = None,
        preview_interval_s: float = 0.0,
        device_priority: DevicePriority | None = None,
    ) -> None:
        self.backend = backend
        self.heard: dict[str, Listener] = {}
        self.handles: dict[str, RequestHandle] = {}
        self.engine: Engine[GenerationJob, VirtualState] = Engine(
            backend,
            max_running=max_running,
            max_batch=max_batch,
            preview_every=preview_every,
            preview_interval_s=preview_interval_s,
            device_priority=device_priority,
            clock=backend.clock,
        )

    def submit(self, *jobs: GenerationJob) -> None:
        for job in jobs:
            self.heard[job.id] = Listener()
            self.handles[job.id] = self.engine.submit(job, self.heard[job.id])

    def run(self, *jobs: GenerationJob) -> None:
        self.submit(*jobs)
        self.engine.run_until_idle()
        assert (self.engine.running, self.engine.waiting, self.engine.busy_since) == (0, 0, None)

    def learn(self, size: int = 64, steps: int = 40) -> None:
        """Lets the batch limit of `size` grow to where it stays, and forgets the calls that took."""
        self.run(*(make_job(f"learn-{n}", size=size, steps=steps) for n in range(8)))
        self.backend.calls.clear()
        self.heard.clear()

    def last(self, name: str) -> Event:
        assert sum(isinstance(event, LAST) for event in self.heard[name].events) == 1
        return self.heard[name].events[-1]

    def done(self) -> set[str]:
        return {name for name in self.heard if isinstance(self.last(name), Done)}
