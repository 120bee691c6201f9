"""The step engine: jobs join and leave the running batch between two denoising steps.

A job is fetched, encoded, stepped, finished and stored. Steps, encoding and finishing have a thread each; what waits
for the network (fetching, storing) runs in a pool. The engine knows no tensors: it drives a `Backend`, so the same loop
runs in production and, without threads and on a virtual clock, in the simulator.

A failed call is never retried inside its `except` block: the traceback would keep the failed call's tensors alive, and
after running out of memory those are in the way.

When the device breaks, the engine ends every job without blame, also those that come later. It makes no further call
and waits for its process to end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol

from deployments.backend import Backend, DeviceBroken, P, S, StaticBatching
from deployments.contract.events import Event
from deployments.contract.job import GenerationJob
from deployments.contract.model import Order
from deployments.engine.cost_model import StepCost
from deployments.engine.device import DeviceGate, DevicePriority, IoPool, NoSharing
from deployments.engine.previews import PreviewSchedule
from deployments.engine.requests import DEVICE_BROKEN, Health, RequestHandle, RequestTable, failure_event
from deployments.engine.scheduler import NO_COSTS, StepCosts
from deployments.engine.workers import Encoder, EngineContext, Finisher, JobFetcher, Stepper

log = logging.getLogger(__name__)

_IO_THREADS: Final = 32
"""Jobs that fetch or store at a time."""


class Engine(Generic[P, S]):
    """Runs jobs on one backend. Use either `start` and `stop`, or `step_once` and `run_until_idle`."""

    def __init__(
        self,
        backend: Backend[P, S],
        *,
        max_running: int,
        max_batch: int,
        order: Order = "aged",
        step_goal_s: float | None = None,
        initial_costs: Mapping[str, StepCost] = NO_COSTS,
        preview_every: float | None = None,
        preview_interval_s: float = 0.0,
        device_priority: DevicePriority | None = None,
        batching: StaticBatching[P, S] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_running` bounds the jobs between admission and the end of finishing, `max_batch` those in one backend
        call. `order` decides who steps first. `step_goal_s` bounds the expected seconds of a step of several images.
        `initial_costs` is what another engine `learned`. `preview_every` is the share of the steps between two
        previews, None for none, `preview_interval_s` the seconds between them at least. `device_priority` decides when
        to step on a shared device. `batching` belongs to a backend whose batches can't grow. `clock` times waits and
        steps. Raises ValueError for a setting out of range.
        """
        if max_running < 1 or max_batch < 1 or (preview_every is not None and not 0 < preview_every <= 1):
            raise ValueError("max_running and max_batch start at 1, preview_every lies in (0, 1]")
        requests = RequestTable[P, S]()
        self.health = Health(clock)
        self._context = EngineContext(backend, requests, self.health, DeviceGate(), IoPool(_IO_THREADS), clock)
        self._costs = StepCosts(max_batch, goal_s=step_goal_s, initial=initial_costs)
        self._fetcher = JobFetcher(self._context, ahead=max_running)
        self._encoder = Encoder(self._context, max_running=max_running, max_batch=max_batch, batching=batching)
        self._stepper = Stepper(
            self._context,
            costs=self._costs,
            order=order,
            priority=device_priority or NoSharing(),
            previews=PreviewSchedule(preview_every, preview_interval_s),
            batching=batching,
        )
        self._finisher = Finisher(self._context)
        self._threads: list[threading.Thread] = []

    @property
    def waiting(self) -> int:
        """Number of jobs not admitted yet."""
        return self._context.requests.waiting

    @property
    def running(self) -> int:
        """Number of jobs admitted and not ended."""
        return self._context.requests.running

    @property
    def setup(self) -> Mapping[str, str]:
        return self._context.backend.setup

    @property
    def counts(self) -> Mapping[str, float]:
        """Counters by the names of `contract/counts.py`."""
        return {**self.health.counts, **self._context.backend.counts()}

    @property
    def learned(self) -> Mapping[str, StepCost]:
        """Measured costs by step key, for other engines on such a device. Thread-safe."""
        return self._costs.learned()

    def submit(self, job: GenerationJob, emit: Callable[[Event], None]) -> RequestHandle:
        """Queues `job`. Thread-safe. The caller bounds the queue (`max_ongoing_requests`).

        The engine's threads call `emit` with `Started` at admission, then `Progress` and `Preview`, and last with
        `Done`, `Failed` or `Interrupted`. A job that can't be fetched gets only the last event. On a broken engine the
        caller's thread emits `Interrupted`. `emit` must neither block nor raise. Raises RuntimeError on a stopped
        engine.
        """
        handle = RequestHandle(job, emit, self._context.clock())
        self._context.requests.add(handle)
        if self.health.broken:  # checked after adding, so that no job slips past the end of all others
            handle.end(DEVICE_BROKEN)
            self._context.requests.drop_ended()
        return handle

    def cancel(self, handle: RequestHandle) -> None:
        """Drops the job unless it has ended. Thread-safe. No event follows the return, and the next batch lacks it."""
        handle.end()
        self._context.requests.drop_ended()

    def start(self) -> None:
        """Starts the threads. Raises RuntimeError when called twice."""
        if self._threads or self._context.requests.closed:
            raise RuntimeError("an engine starts once")
        self._context.io.start()
        for name, worker in (
            ("fetch", self._fetcher),
            ("encode", self._encoder),
            ("steps", self._stepper),
            ("finish", self._finisher),
        ):
            thread = threading.Thread(target=self._run, args=(worker,), name=f"engine-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Drops every job without an event, and waits up to `timeout` seconds per thread for backend calls in progress.
        Returns False if one still runs; it ends with the process."""
        for handle in self._context.requests.close():
            handle.end()
        self._context.requests.drop_ended()
        self._context.io.stop()
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def step_once(self) -> bool:
        """Fetches, encodes, takes a step and finishes in the calling thread. Returns False if nothing was to do.

        Raises RuntimeError on a started engine.
        """
        if self._threads:
            raise RuntimeError("the engine's threads do this")
        if self.health.broken:
            return False
        try:
            worked = [self._fetcher.work(), self._encoder.work(), self._stepper.work()]
            while self._finisher.work():
                worked.append(True)
        except DeviceBroken as error:
            self._context.give_up(error)
            return True
        return any(worked)

    def run_until_idle(self) -> None:
        """Works in the calling thread until nothing is left to do."""
        while self.step_once():
            pass

    def _run(self, worker: _Worker) -> None:
        while not self._context.requests.closed:
            changes = self._context.requests.changes
            try:
                worked = not self.health.broken and worker.work()
            except DeviceBroken as error:
                self._context.give_up(error)
                continue
            except Exception as error:
                # The workers handle errors of the backend, so this is a bug here. A job may cause it, and would raise
                # again for ever.
                log.exception("the engine's loop failed; its jobs are given up")
                handles = self._context.requests.unfinished()
                only = handles[0].job if len(handles) == 1 else None
                event = failure_event(error, blame=self.health.record_fault(only) and only is not None)
                self._context.end_all(handles, event)
                continue
            if not worked:
                self._context.requests.wait_for(lambda changes=changes: self._context.requests.changes != changes)


class _Worker(Protocol):
    def work(self) -> bool:
        """Returns False if there was nothing to do. Raises DeviceBroken."""
        ...
