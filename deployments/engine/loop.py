"""The step engine: jobs join and leave the running batch between two denoising steps.

One thread encodes, steps and previews; a second one finishes pictures (decode, encode, store) while the next steps run.
The engine knows no tensors: it drives a `Backend`, so the same loop runs in production and, without threads and on a
virtual clock, in the simulator.

A failed call is never retried inside its `except` block: the traceback would keep the failed call's tensors alive, and
after running out of memory those are the ones in the way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic

from deployments.contract.events import Done, Event, Started
from deployments.contract.job import GenerationJob
from deployments.engine.backend import Backend, JobError, OutOfMemory, S, Unavailable
from deployments.engine.cost import CostTable, MemoryLimit
from deployments.engine.device_priority import Alone, Precedence
from deployments.engine.health import Health, Worker
from deployments.engine.policy import BROKEN, TOO_LATE, hopeless, pick, preview_due, verdict
from deployments.engine.request_handle import Ticket
from deployments.engine.request_table import Roster, Run, Stage

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
        precedence: Precedence | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_running` bounds the jobs between admission and their last event, `max_batch` those in one backend call:
        keep the first several times the second when shapes differ, since a batch needs states of one key.
        `preview_every` is the share of the steps between two previews, None for none. `precedence` says when steps may
        be taken on a device that others use, too. `clock` times waits and steps;
        `wall_clock` is compared with deadlines (epoch seconds). Raises ValueError for a setting out of range.
        """
        if max_running < 1 or max_batch < 1 or (preview_every is not None and not 0 < preview_every <= 1):
            raise ValueError("max_running and max_batch start at 1, preview_every lies in (0, 1]")
        self._backend = backend
        self._max_running = max_running
        self._preview_every = preview_every
        self._precedence = precedence or Alone()
        self._clock = clock
        self._wall_clock = wall_clock
        self._cost = CostTable(max_batch)
        self._encode_limit = MemoryLimit(max_batch)
        self._roster: Roster[S] = Roster()
        self._threads: list[threading.Thread] = []
        self._health = Health(clock)

    @property
    def waiting(self) -> int:
        """Jobs not admitted yet."""
        return self._roster.waiting

    @property
    def running(self) -> int:
        """Jobs admitted and not ended: in encoding, between steps or finishing."""
        return self._roster.active

    @property
    def busy_since(self) -> float | None:
        """When the longest backend call now in progress began, by the engine's clock; None when there is none."""
        return self._health.busy_since

    @property
    def faults(self) -> int:
        """Jobs in a row that ended on an unexpected error. Many mean that the device is broken, not the jobs."""
        return self._health.faults

    def submit(self, job: GenerationJob, emit: Callable[[Event], None]) -> Ticket:
        """Queues `job`, from any thread. The caller bounds the queue (`max_ongoing_requests`).

        `emit` is called from the engine's threads with `Started` at admission, then `Progress` and `Preview`, and last
        `Done`, `Failed` or `Interrupted`; a job whose deadline passes in the queue gets `Failed` alone. It must neither
        block nor raise. Raises RuntimeError once the engine is stopped.
        """
        ticket = Ticket(job, emit, self._clock())
        self._roster.add(ticket)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Drops the job unless it has ended, from any thread. No event follows the return, the next batch lacks it."""
        ticket.end()
        self._roster.drop_ended()

    def start(self) -> None:
        """Starts both threads. Raises RuntimeError when called twice."""
        if self._threads or self._roster.closed:
            raise RuntimeError("an engine starts once")
        for name, work in (("engine-steps", self._loop), ("engine-finish", self._finish_loop)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Drops every job without an event and waits for the backend calls in progress, `timeout` seconds per thread.
        False when a call is still going then; it ends with the process."""
        for ticket in self._roster.close():
            ticket.end()
        self._roster.drop_ended()
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def step_once(self) -> bool:
        """One round in the calling thread: admit, encode, one step, finish what is done. False if nothing was to do.

        Raises RuntimeError on a started engine.
        """
        if self._threads:
            raise RuntimeError("the engine's threads do this")
        worked = self._round()
        while (run := self._roster.take(Stage.STEPPED)) is not None:
            self._finish(run, worker=Worker.STEPS)
            worked = True
        return worked

    def run_until_idle(self) -> None:
        """Works in the calling thread until nothing is left to do."""
        while self.step_once():
            pass

    def _loop(self) -> None:
        while not self._roster.closed:
            seen = self._roster.changes
            try:
                worked = self._round()
            except Exception:
                # Errors of the backend are handled where they arise; this is one of ours. What caused it may well be
                # a job in here, and left in place it would raise again for ever.
                log.exception("the engine's loop failed; its jobs are given up")
                for ticket in self._roster.unfinished():
                    ticket.end(BROKEN)
                self._roster.encoded([])
                self._roster.drop_ended()
                continue
            if not worked:
                self._roster.wait_for(lambda seen=seen: self._roster.changes != seen)

    def _finish_loop(self) -> None:
        while not self._roster.closed:
            seen = self._roster.changes
            run = self._roster.take(Stage.STEPPED)
            if run is not None:
                self._finish(run, worker=Worker.FINISH)
            else:
                self._roster.wait_for(lambda seen=seen: self._roster.changes != seen)

    def _round(self) -> bool:
        """What the loop thread does between two steps, and one step. False when there was nothing to do."""
        self._expire()
        self._precedence.tell(bool(self._roster.waiting or self._roster.active))
        admitted = self._roster.admit(max_running=self._max_running, at_most=self._encode_limit.size)
        if admitted:
            for ticket in admitted:
                ticket.send(Started())
            runs = self._encode(admitted)
            self._roster.encoded(runs)
            for run in runs:
                self._move_if_done(run)
        cramped = self._roster.take(Stage.CRAMPED)
        if cramped is not None:
            self._finish(cramped, worker=Worker.STEPS, again=True)
        batch = pick(self._roster.stepping(), self._clock(), self._cost)
        if batch:
            self._precedence.wait()
            self._step(batch)
        return bool(admitted or cramped or batch)

    def _expire(self) -> None:
        """Ends jobs past their deadline. What only has to be finished is let through."""
        now = self._wall_clock()
        for ticket in self._roster.unfinished():
            if hopeless(ticket.job, now):
                ticket.end(TOO_LATE)
        self._roster.drop_ended()

    def _encode(self, tickets: Sequence[Ticket]) -> list[Run[S]]:
        """Makes pictures of jobs. A batch that fails is tried again in parts, so that only bad jobs fail."""
        runs: list[Run[S]] = []
        pending = deque([list(tickets)])
        too_many, one_too_large = 0, False
        while pending:
            batch = [ticket for ticket in pending.popleft() if not ticket.ended]
            if not batch:
                continue
            try:
                with self._health.call(Worker.STEPS):
                    results = self._backend.encode([ticket.job for ticket in batch])
                pairs = list(zip(batch, results, strict=True))
            except Exception as error:
                memory = isinstance(error, OutOfMemory)
                if len(batch) == 1:
                    self._fail(batch[0], error)
                    one_too_large |= memory
                    continue
                log.warning("encoding %d jobs failed; tried again in parts", len(batch), exc_info=error)
                too_many = len(batch) if memory else too_many
                size = (len(batch) + 1) // 2 if memory else 1
                pending.extendleft(reversed([batch[first : first + size] for first in range(0, len(batch), size)]))
                continue
            self._encode_limit.fitted(len(batch))
            for ticket, result in pairs:
                if isinstance(result, JobError):
                    self._fail(ticket, result)
                else:
                    runs.append(Run(ticket, result))
        if too_many and not one_too_large:
            # Otherwise it was the one job and not the number of them.
            self._encode_limit.failed(too_many)
        return runs

    def _step(self, batch: Sequence[Run[S]]) -> None:
        """One step of pictures of one key. A step that failed changed nothing: it is taken again in other company."""
        if self._step_batch(batch):
            return
        for run in batch:
            if not run.ticket.ended:
                self._step_batch([run])
        if not any(run.ticket.ended for run in batch):
            # None of them was bad, so the size was: it would fail at every step.
            self._cost.shrink(batch[0].state.key, len(batch))

    def _step_batch(self, batch: Sequence[Run[S]]) -> bool:
        """False when the step failed in a way that only single steps can explain."""
        key, began = batch[0].state.key, self._clock()
        try:
            with self._health.call(Worker.STEPS):
                self._backend.step([run.state for run in batch])
        except Exception as error:
            if isinstance(error, OutOfMemory):
                # The pictures stay where they are; the next pick takes fewer of them.
                self._cost.shrink(key, len(batch))
            if len(batch) == 1:
                self._fail(batch[0].ticket, error)
                self._roster.drop_ended()
                return True
            log.warning("a step of %d pictures failed; tried again in parts", len(batch), exc_info=error)
            return isinstance(error, OutOfMemory)
        self._cost.observe(key, len(batch), self._clock() - began)
        self._health.good()
        for run in batch:
            self._report(run)
            self._move_if_done(run)
        return True

    def _report(self, run: Run[S]) -> None:
        done, total = run.state.done_steps, run.state.total_steps
        run.ticket.progress(done / total, self._clock())
        if self._preview_every is None or run.ticket.ended or not preview_due(done, total, self._preview_every):
            return
        try:
            with self._health.call(Worker.STEPS):
                preview = self._backend.preview(run.state)
        except Exception:
            # A preview is a courtesy; its failure is no reason to lose the picture.
            log.warning("no preview of job %s", run.job.id, exc_info=True)
            return
        if preview is not None:
            run.ticket.send(preview)

    def _move_if_done(self, run: Run[S]) -> None:
        if run.state.done_steps >= run.state.total_steps:
            self._roster.move(run, Stage.STEPPED)

    def _finish(self, run: Run[S], *, worker: Worker, again: bool = False) -> None:
        cramped = False
        try:
            with self._health.call(worker):
                output = self._backend.finish(run.state)
        except Exception as error:
            cramped = isinstance(error, OutOfMemory) and not again
            if not cramped:
                self._fail(run.ticket, error)
        else:
            self._health.good()
            run.ticket.end(Done(output))
        if cramped:
            self._roster.move(run, Stage.CRAMPED)
        else:
            # Only after its last event: whoever waits for an isolated job to end starts behind it.
            self._roster.remove(run)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        """Ends the one job that `error` belongs to."""
        if not isinstance(error, (JobError, OutOfMemory, Unavailable)):
            self._health.fault()
            log.error("job %s failed", ticket.job.id, exc_info=error)
        ticket.end(verdict(error))
