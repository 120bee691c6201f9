"""The step engine: jobs join and leave the running batch between two denoising steps.

A job is fetched, encoded, stepped, finished and stored. The thread that takes steps does nothing else: encoding and
finishing have threads of their own beside it, and what waits for others (fetching, storing) is left to a pool. The
engine knows no tensors: it drives a `Backend`, so the same loop runs in production and, without threads and on a
virtual clock, in the simulator.

A failed call is never retried inside its `except` block: the traceback would keep the failed call's tensors alive, and
after running out of memory those are the ones in the way.

When the device breaks, every job ends at once and without blame, and so does every one that comes later: the engine
makes no further call, and waits for its process to end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Generic, Protocol

from deployments.backend import Backend, DeviceBroken, P, S
from deployments.contract.events import Event, Failed, Interrupted
from deployments.contract.job import GenerationJob
from deployments.contract.model import Order
from deployments.engine.cost_model import StepCost
from deployments.engine.device import DeviceGate, DevicePriority, IoPool, Unshared
from deployments.engine.requests import DEVICE_BROKEN, Health, RequestHandle, RequestTable, failure_event
from deployments.engine.scheduler import NOTHING_KNOWN, StepCosts
from deployments.engine.workers import Encoder, Fetcher, Finisher, Stepper

log = logging.getLogger(__name__)

_WAITERS: Final = 32
"""Jobs that wait for others at a time: for inputs, or for results to be stored."""


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
        known_costs: Mapping[str, StepCost] = NOTHING_KNOWN,
        preview_every: float | None = None,
        preview_interval_s: float = 0.0,
        device_priority: DevicePriority | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_running` bounds the jobs between admission and the end of finishing, `max_batch` those in one backend
        call. `order` says who steps first where not all can. `step_goal_s` is how long a step of several may be
        expected to take, in seconds. `known_costs` is what another engine `learned`. `preview_every` is the share of
        the steps between two previews, None for none; no two of a job are made within `preview_interval_s`, nor one so
        soon after its admission. `device_priority` says when steps may be taken on a device that
        others use, too. `clock` times waits and steps. Raises ValueError for a setting out of range.
        """
        if max_running < 1 or max_batch < 1 or (preview_every is not None and not 0 < preview_every <= 1):
            raise ValueError("max_running and max_batch start at 1, preview_every lies in (0, 1]")
        requests: RequestTable[P, S] = RequestTable()
        health, device, background = Health(clock), DeviceGate(), IoPool(_WAITERS)
        costs = StepCosts(max_batch, goal_s=step_goal_s, known=known_costs)
        self._backend = backend
        self._clock = clock
        self._requests = requests
        self._health = health
        self._background = background
        # Of what this holds, nothing may hold it: clips on their way would outlive an engine that was dropped.
        self._give_up = partial(_give_up, requests, health)
        self._fetcher = Fetcher(backend, requests, background, health, device, ahead=max_running, broken=self._give_up)
        self._encoder = Encoder(backend, requests, health, device, max_running=max_running, max_batch=max_batch)
        self._stepper = Stepper(
            backend,
            requests,
            background,
            health,
            device,
            costs=costs,
            order=order,
            priority=device_priority or Unshared(),
            preview_every=preview_every,
            preview_interval_s=preview_interval_s,
            clock=clock,
        )
        self._finisher = Finisher(backend, requests, background, health, device)
        self._costs = costs
        self._threads: list[threading.Thread] = []

    @property
    def waiting(self) -> int:
        """Jobs not admitted yet."""
        return self._requests.waiting

    @property
    def running(self) -> int:
        """Jobs admitted and not ended: in encoding, between steps, finishing or being stored."""
        return self._requests.running

    @property
    def busy_since(self) -> float | None:
        """When the longest call now on the device began, by the engine's clock; None when there is none."""
        return self._health.busy_since

    @property
    def setup(self) -> Mapping[str, str]:
        """How the model runs here."""
        return self._backend.setup

    @property
    def counts(self) -> Mapping[str, float]:
        """What was done so far, by the names of `contract/counts.py`."""
        return {**self._health.counts, **self._backend.counts()}

    @property
    def learned(self) -> Mapping[str, StepCost]:
        """What steps cost here, by their kinds, for other engines on the like of this device; from any thread."""
        return self._costs.learned()

    @property
    def faults(self) -> int:
        """Unexpected errors since a job was last done. Many mean that the model is broken, not the jobs."""
        return self._health.faults

    @property
    def broken(self) -> bool:
        """Whether the device failed. Every job ends unblamed then; only a new process helps."""
        return self._health.broken

    def submit(self, job: GenerationJob, emit: Callable[[Event], None]) -> RequestHandle:
        """Queues `job`, from any thread. The caller bounds the queue (`max_ongoing_requests`).

        `emit` is called from the engine's threads with `Started` at admission, then `Progress` and `Preview`, and last
        `Done`, `Failed` or `Interrupted`; a job that can't be fetched gets that last one alone, one that comes to a
        broken engine `Interrupted`, from the caller's thread. It must neither block nor raise. Raises RuntimeError once
        the engine is stopped.
        """
        handle = RequestHandle(job, emit, self._clock())
        self._requests.add(handle)
        if self._health.broken:  # asked only now, so that none slips in behind those that the break ended
            handle.end(DEVICE_BROKEN)
            self._requests.drop_ended()
        return handle

    def cancel(self, handle: RequestHandle) -> None:
        """Drops the job unless it has ended, from any thread. No event follows the return, the next batch lacks it."""
        handle.end()
        self._requests.drop_ended()

    def start(self) -> None:
        """Starts the threads. Raises RuntimeError when called twice."""
        if self._threads or self._requests.closed:
            raise RuntimeError("an engine starts once")
        self._background.start()
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
        """Drops every job without an event and waits for the backend calls in progress, `timeout` seconds per thread.
        False when a call is still going then; it ends with the process."""
        for handle in self._requests.close():
            handle.end()
        self._requests.drop_ended()
        self._background.stop()
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def step_once(self) -> bool:
        """One round in the calling thread: fetch, admit and encode, one step, finish what is done. False if nothing was
        to do.

        Raises RuntimeError on a started engine.
        """
        if self._threads:
            raise RuntimeError("the engine's threads do this")
        if self._health.broken:
            return False
        try:
            worked = [self._fetcher.work(), self._encoder.work(), self._stepper.work()]
            while self._finisher.work():
                worked.append(True)
        except DeviceBroken as error:
            self._give_up(error)
            return True
        return any(worked)

    def run_until_idle(self) -> None:
        """Works in the calling thread until nothing is left to do."""
        while self.step_once():
            pass

    def _run(self, worker: _Worker) -> None:
        """What a thread does: its work, whenever something has changed that may give it some."""
        while not self._requests.closed:
            seen = self._requests.changes
            try:
                worked = not self._health.broken and worker.work()
            except DeviceBroken as error:
                self._give_up(error)
                continue
            except Exception as error:
                # Errors of the backend are handled where they arise; this is one of ours. What caused it may well be
                # a job in here, and left in place it would raise again for ever.
                log.exception("the engine's loop failed; its jobs are given up")
                handles = self._requests.unfinished()
                event = failure_event(error, blame=self._health.faulted() and len(handles) == 1)
                _end_all(self._requests, handles, event)
                continue
            if not worked:
                self._requests.wait_for(lambda seen=seen: self._requests.changes != seen)


def _give_up(requests: RequestTable[P, S], health: Health, error: DeviceBroken) -> None:
    """Ends every job without blame: the device broke, and none of them can go on here."""
    health.device_broke()
    log.critical("the device is broken; nothing more can run in this process", exc_info=error)
    _end_all(requests, requests.handles(), DEVICE_BROKEN)


def _end_all(requests: RequestTable[P, S], handles: Iterable[RequestHandle], event: Failed | Interrupted) -> None:
    for handle in handles:
        handle.end(event)
    requests.drop_ended()


class _Worker(Protocol):
    def work(self) -> bool:
        """Does what there is to do; False if there was nothing. Raises DeviceBroken."""
        ...
