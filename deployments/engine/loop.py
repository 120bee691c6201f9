"""The step engine: jobs join and leave the running batch between two denoising steps.

One thread encodes, steps and previews; a second one finishes pictures (decode, encode, store) while the next steps run.
The engine knows no tensors: it drives a `Backend`, so the same loop runs in production and, without threads and on a
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
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from deployments.contract.events import Done, Event, Failed, Interrupted, Started
from deployments.contract.job import GenerationJob
from deployments.engine.backend import Backend, DeviceBroken, OutOfMemory, S
from deployments.engine.device_priority import DevicePriority, Unshared
from deployments.engine.encoder import Encoder
from deployments.engine.failures import DEADLINE_PASSED, DEVICE_BROKEN, fail, failure_event
from deployments.engine.health import Health, Worker
from deployments.engine.policy import expired, preview_due, select_batch
from deployments.engine.request_handle import RequestHandle
from deployments.engine.request_table import ActiveRequest, RequestTable, Stage
from deployments.engine.step_times import StepTimes

log = logging.getLogger(__name__)


class Engine(Generic[S]):
    """Runs jobs on one backend. Use either `start` and `stop`, or `step_once` and `run_until_idle`."""

    def __init__(
        self,
        backend: Backend[S],
        *,
        max_running: int,
        max_batch: int,
        preview_every: float | None = None,
        device_priority: DevicePriority | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_running` bounds the jobs between admission and their last event, `max_batch` those in one backend call:
        keep the first several times the second when shapes differ, since a batch needs states of one key.
        `preview_every` is the share of the steps between two previews, None for none. `device_priority` says when steps
        may be taken on a device that others use, too. `clock` times waits and steps; `wall_clock` is compared with
        deadlines (epoch seconds). Raises ValueError for a setting out of range.
        """
        if max_running < 1 or max_batch < 1 or (preview_every is not None and not 0 < preview_every <= 1):
            raise ValueError("max_running and max_batch start at 1, preview_every lies in (0, 1]")
        self._backend = backend
        self._max_running = max_running
        self._preview_every = preview_every
        self._device_priority = device_priority or Unshared()
        self._clock = clock
        self._wall_clock = wall_clock
        self._requests: RequestTable[S] = RequestTable()
        self._step_times = StepTimes(max_batch)
        self._health = Health(clock)
        self._encoder = Encoder(backend, max_batch, self._health)
        self._threads: list[threading.Thread] = []

    @property
    def waiting(self) -> int:
        """Jobs not admitted yet."""
        return self._requests.waiting

    @property
    def running(self) -> int:
        """Jobs admitted and not ended: in encoding, between steps or finishing."""
        return self._requests.running

    @property
    def busy_since(self) -> float | None:
        """When the longest backend call now in progress began, by the engine's clock; None when there is none."""
        return self._health.busy_since

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
        `Done`, `Failed` or `Interrupted`; a job whose deadline passes in the queue gets `Failed` alone, one that comes
        to a broken engine `Interrupted`, from the caller's thread. It must neither block nor raise. Raises RuntimeError
        once the engine is stopped.
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
        """Starts both threads. Raises RuntimeError when called twice."""
        if self._threads or self._requests.closed:
            raise RuntimeError("an engine starts once")
        for name, work in (("engine-steps", self._loop), ("engine-finish", self._finish_loop)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Drops every job without an event and waits for the backend calls in progress, `timeout` seconds per thread.
        False when a call is still going then; it ends with the process."""
        for handle in self._requests.close():
            handle.end()
        self._requests.drop_ended()
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def step_once(self) -> bool:
        """One round in the calling thread: admit, encode, one step, finish what is done. False if nothing was to do.

        Raises RuntimeError on a started engine.
        """
        if self._threads:
            raise RuntimeError("the engine's threads do this")
        try:
            worked = self._round()
            while (request := self._requests.take(Stage.STEPPED)) is not None:
                self._finish(request, worker=Worker.STEPS)
                worked = True
        except DeviceBroken as error:
            self._give_up(error)
            return True
        return worked

    def run_until_idle(self) -> None:
        """Works in the calling thread until nothing is left to do."""
        while self.step_once():
            pass

    def _loop(self) -> None:
        while not self._requests.closed:
            seen = self._requests.changes
            try:
                worked = self._round()
            except DeviceBroken as error:
                self._give_up(error)
                continue
            except Exception as error:
                # Errors of the backend are handled where they arise; this is one of ours. What caused it may well be
                # a job in here, and left in place it would raise again for ever.
                log.exception("the engine's loop failed; its jobs are given up")
                handles = self._requests.unfinished()
                event = failure_event(error, blame=self._health.faulted() and len(handles) == 1)
                self._end_all(handles, event)
                continue
            if not worked:
                self._requests.wait_for(lambda seen=seen: self._requests.changes != seen)

    def _finish_loop(self) -> None:
        while not self._requests.closed:
            seen = self._requests.changes
            request = self._requests.take(Stage.STEPPED)
            if request is None:
                self._requests.wait_for(lambda seen=seen: self._requests.changes != seen)
                continue
            try:
                self._finish(request, worker=Worker.FINISH)
            except DeviceBroken as error:
                self._give_up(error)

    def _give_up(self, error: DeviceBroken) -> None:
        """Ends every job without blame: the device broke, and none of them can go on here."""
        self._health.device_broke()
        log.critical("the device is broken; nothing more can run in this process", exc_info=error)
        self._end_all(self._requests.handles(), DEVICE_BROKEN)

    def _end_all(self, handles: Iterable[RequestHandle], event: Failed | Interrupted) -> None:
        for handle in handles:
            handle.end(event)
        self._requests.encoded([])
        self._requests.drop_ended()

    def _round(self) -> bool:
        """What the loop thread does between two steps, and one step. False when there was nothing to do."""
        if self._health.broken:
            return False
        self._expire()
        self._device_priority.announce(bool(self._requests.waiting or self._requests.running))
        admitted = self._requests.admit(max_running=self._max_running, at_most=self._encoder.max_batch)
        if admitted:
            for handle in admitted:
                handle.send(Started())
            encoded = self._encoder.encode(admitted)
            self._requests.encoded(encoded)
            for request in encoded:
                self._move_if_done(request)
        retried = self._requests.take(Stage.FINISH_RETRY)
        if retried is not None:
            self._finish(retried, worker=Worker.STEPS, again=True)
        batch = select_batch(self._requests.stepping(), self._clock(), self._step_times)
        if batch:
            self._device_priority.wait()
            self._step(batch)
        return bool(admitted or retried or batch)

    def _expire(self) -> None:
        """Ends jobs past their deadline. What only has to be finished is let through."""
        now = self._wall_clock()
        for handle in self._requests.unfinished():
            if expired(handle.job, now):
                handle.end(DEADLINE_PASSED)
        self._requests.drop_ended()

    def _step(self, batch: Sequence[ActiveRequest[S]]) -> None:
        """One step of pictures of one key. A step that failed changed nothing: it is taken again in other company."""
        if self._step_batch(batch):
            return
        for request in batch:
            if not request.handle.ended:
                self._step_batch([request])
        if not any(request.handle.ended for request in batch):
            # None of them was bad, so the size was: it would fail at every step.
            self._step_times.shrink(batch[0].state.key, len(batch))

    def _step_batch(self, batch: Sequence[ActiveRequest[S]]) -> bool:
        """False when the step failed in a way that only single steps can explain."""
        key, began = batch[0].state.key, self._clock()
        try:
            with self._health.call(Worker.STEPS):
                self._backend.step([request.state for request in batch])
        except DeviceBroken:
            raise
        except Exception as error:
            if isinstance(error, OutOfMemory):
                # The pictures stay where they are; the next batch takes fewer of them.
                self._step_times.shrink(key, len(batch))
            if len(batch) == 1:
                fail(batch[0].handle, error, self._health)
                self._requests.drop_ended()
                return True
            log.warning("a step of %d pictures failed; tried again in parts", len(batch), exc_info=error)
            return isinstance(error, OutOfMemory)
        step_s = self._clock() - began
        self._step_times.observe(key, len(batch), step_s)
        for request in batch:
            self._report(request, len(batch), step_s)
            self._move_if_done(request)
        return True

    def _report(self, request: ActiveRequest[S], batch: int, step_s: float) -> None:
        done, total = request.state.done_steps, request.state.total_steps
        request.handle.progress(done / total, self._clock(), batch, step_s)
        if self._preview_every is None or request.handle.ended or not preview_due(done, total, self._preview_every):
            return
        try:
            with self._health.call(Worker.STEPS):
                preview = self._backend.preview(request.state)
        except DeviceBroken:
            raise
        except Exception:
            # A preview is a courtesy; its failure is no reason to lose the picture.
            log.warning("no preview of job %s", request.job.id, exc_info=True)
            return
        if preview is not None:
            request.handle.send(preview)

    def _move_if_done(self, request: ActiveRequest[S]) -> None:
        if request.state.done_steps >= request.state.total_steps:
            self._requests.move(request, Stage.STEPPED)

    def _finish(self, request: ActiveRequest[S], *, worker: Worker, again: bool = False) -> None:
        retry = False
        try:
            with self._health.call(worker):
                output = self._backend.finish(request.state)
        except DeviceBroken:
            request.handle.end(DEVICE_BROKEN)
            self._requests.remove(request)
            raise
        except Exception as error:
            retry = isinstance(error, OutOfMemory) and not again
            if not retry:
                fail(request.handle, error, self._health)
        else:
            self._health.succeeded()
            request.handle.end(Done(output))
        if retry:
            self._requests.move(request, Stage.FINISH_RETRY)
        else:
            # Only after its last event: whoever waits for an isolated job to end starts behind it.
            self._requests.remove(request)
