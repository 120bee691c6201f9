"""The engine's workers: fetcher, encoder, stepper, finisher."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic

from deployments.backend import Backend, DeviceBroken, JobError, OutOfMemory, P, S, StateLike, StaticBatching
from deployments.contract.events import Done, Failed, Interrupted, Preview, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import Order
from deployments.engine.device import DeviceGate, DevicePriority, IoPool
from deployments.engine.previews import PreviewSchedule
from deployments.engine.requests import (
    DEADLINE_PASSED,
    DEVICE_BROKEN,
    MEMORY_BUSY,
    ActiveRequest,
    Health,
    Milestone,
    RequestHandle,
    RequestTable,
    Stage,
    WaitingRequest,
    Worker,
    deadline_infeasible,
    fail,
)
from deployments.engine.scheduler import MemoryLimit, StepCosts, infeasible_s, select_batch

log = logging.getLogger(__name__)

MAX_STORING: Final = 64
"""Images being stored at most; the next one is finished when there are fewer."""


@dataclass(frozen=True, slots=True)
class EngineContext(Generic[P, S]):
    """State that the workers of one engine share. It has no reference to the engine, so that a dropped one is freed."""

    backend: Backend[P, S]
    requests: RequestTable[P, S]
    health: Health
    gate: DeviceGate
    io: IoPool
    clock: Callable[[], float]

    def fail(self, handle: RequestHandle, error: Exception) -> None:
        """Ends the request that caused `error`."""
        fail(handle, error, self.health)
        self.requests.drop_ended()

    def end_all(self, handles: Iterable[RequestHandle], event: Failed | Interrupted) -> None:
        for handle in handles:
            handle.end(event)
        self.requests.drop_ended()

    def give_up(self, error: DeviceBroken) -> None:
        """Ends every request without blame, as the device broke."""
        self.health.broken = True
        log.critical("the device is broken; nothing more can run in this process", exc_info=error)
        self.end_all(self.requests.handles(), DEVICE_BROKEN)


class Stepper(Generic[P, S]):
    """Takes steps with the running batch. Not thread-safe."""

    def __init__(
        self,
        context: EngineContext[P, S],
        *,
        costs: StepCosts,
        order: Order,
        priority: DevicePriority,
        previews: PreviewSchedule,
        batching: StaticBatching[P, S] | None,
    ) -> None:
        self._batching = batching
        self._context = context
        self._costs = costs
        self._order: Order = order
        self._priority = priority
        self._previews = previews

    def work(self) -> bool:
        """Ends requests that missed or surely will miss their deadline, and takes one step. Raises DeviceBroken."""
        ended = self._expire()
        self._priority.announce(bool(self._context.requests.waiting or self._context.requests.running))
        if not self._context.requests.stepping():
            return ended
        self._priority.wait()
        # Not before the wait: requests come and go meanwhile.
        batch = self._select()
        if not batch:
            return ended
        self._step(batch)
        return True

    def _select(self) -> list[ActiveRequest[S]]:
        """Returns the requests that take the next step. Where the backend makes the batches, this is the batch of the
        first request in order, unless another must end before. Of a failed batch each request goes on alone."""
        stepping = self._context.requests.stepping()
        batch = select_batch(stepping, self._context.clock(), self._costs, self._order)
        if self._batching is None or not batch:
            return batch
        calls = {request: self._batching.get_call(request.state) for request in stepping}
        current = self._batching.current_call
        next_call = current if current in calls.values() else calls[batch[0]]
        members = [request for request, call in calls.items() if call is next_call]
        return members[:1] if next_call is not None and next_call.failed else members

    def _expire(self) -> bool:
        """Ends requests past their deadline, but for those whose steps are done. Returns whether there were any."""
        now = self._context.clock()
        ends: list[tuple[RequestHandle, Failed]] = []
        for handle in self._context.requests.unfinished():
            remaining = handle.remaining(now)
            if remaining is not None and remaining <= 0:
                ends.append((handle, DEADLINE_PASSED))
        for request in self._context.requests.stepping():
            remaining = request.handle.remaining(now)
            needed = None if remaining is None else infeasible_s(request.state, remaining, self._costs)
            if remaining is not None and needed is not None:
                ends.append((request.handle, deadline_infeasible(needed, remaining)))
        for handle, event in ends:
            handle.end(event)  # the first event counts
        self._context.requests.drop_ended()
        return bool(ends)

    def _step(self, batch: Sequence[ActiveRequest[S]]) -> None:
        """Takes a step, or steps with each image alone if it fails. A failed step changes nothing."""
        if self._step_batch(batch) or self._batching is not None:
            return
        for request in batch:
            if not request.handle.ended:
                self._step_batch([request])
        if not any(request.handle.ended for request in batch):
            # No single image failed, so the batch was too large, and would be at every step.
            self._costs.shrink([request.state for request in batch])

    def _step_batch(self, batch: Sequence[ActiveRequest[S]]) -> bool:
        """Returns False if the step failed in a way that only single steps can explain."""
        states = [request.state for request in batch]
        try:
            step_s = self._run_step(batch)
        except DeviceBroken:
            raise
        except Exception as error:
            if isinstance(error, OutOfMemory):
                # The states are unchanged; the next batch is smaller.
                self._costs.shrink(states)
            if len(batch) == 1:
                self._context.fail(batch[0].handle, error)
                return True
            log.warning("a step of %d images failed; tried again in parts", len(batch), exc_info=error)
            return isinstance(error, OutOfMemory)
        self._costs.observe(states, step_s)
        self._context.health.record_step([request.job for request in batch], step_s)
        for request in batch:
            self._report(request, len(batch), step_s)
            if request.state.done_steps >= request.state.total_steps:
                self._context.requests.move(request, Stage.DENOISED)
        if self._batching is not None and _steps_left(states[0]) == 1:
            self._context.requests.wake()  # to encode the next call with this key meanwhile
        return True

    def _run_step(self, batch: Sequence[ActiveRequest[S]]) -> float:
        """Returns the seconds of the step. One that runs out of memory beside other work runs again alone: the other
        work may have taken the memory."""
        states, handles = [request.state for request in batch], [request.handle for request in batch]

        def step(*, exclusive: bool) -> tuple[float, OutOfMemory | None]:
            gate, health = self._context.gate, self._context.health
            with gate.step(exclusive=exclusive) as overlapped, health.call(Worker.STEPS, handles):
                started_at = self._context.clock()
                try:
                    self._context.backend.step(states)
                except OutOfMemory as error:
                    if not overlapped():
                        raise
                    return 0.0, error
                return self._context.clock() - started_at, None

        step_s, out_of_memory = step(exclusive=False)
        return step(exclusive=True)[0] if out_of_memory else step_s

    def _report(self, request: ActiveRequest[S], batch: int, step_s: float) -> None:
        now = self._context.clock()
        request.handle.progress(request.state.done_steps / request.state.total_steps, now, batch, step_s)
        if not self._previews.is_due(request, now):
            return
        request.previewed_at, request.previews = now, (*request.previews, request.state.done_steps)
        try:
            with self._context.health.call(Worker.STEPS, [request.handle]):
                store = self._context.backend.preview(request.state)
        except DeviceBroken:
            raise
        except Exception:
            # Losing a preview is no reason to lose the image.
            log.warning("no preview of job %s", request.job.id, exc_info=True)
            return
        if store is not None:
            request.previewing = True
            self._context.io.run(partial(self._store_preview, request, store))

    def _store_preview(self, request: ActiveRequest[S], store: Callable[[], Preview]) -> None:
        try:
            request.handle.send(store())
        except Exception:
            log.warning("no preview of job %s", request.job.id, exc_info=True)
        request.previewing = False


class Encoder(Generic[P, S]):
    """Admits and encodes requests. Not thread-safe; runs beside the stepper."""

    def __init__(
        self,
        context: EngineContext[P, S],
        *,
        max_running: int,
        max_batch: int,
        batching: StaticBatching[P, S] | None,
    ) -> None:
        """Raises ValueError for `max_batch` below 1."""
        self._batching = batching
        self._context = context
        self._max_running = max_running
        self._limit = MemoryLimit(max_batch)

    def work(self) -> bool:
        """Admits and encodes as many requests as may join and are believed to fit into memory. Raises DeviceBroken."""
        admitted = self._admit()
        if not admitted:
            return False
        now = self._context.clock()
        for request in admitted:
            request.handle.reached[Milestone.ADMITTED] = now
            request.handle.send(Started())
        encoded: list[ActiveRequest[S]] = []
        try:
            encoded = self._encode(admitted)
            now = self._context.clock()
            for request in encoded:
                request.handle.reached[Milestone.ENCODED] = now
                if request.state.done_steps >= request.state.total_steps:  # resumed
                    request.stage = Stage.DENOISED
        except DeviceBroken:
            for request in admitted:
                request.handle.end(DEVICE_BROKEN)
            raise
        finally:
            self._context.requests.encoded(encoded)
        return True

    def _admit(self) -> list[WaitingRequest[P]]:
        """Admits requests by order. A backend's call can't grow, so a job that could have shared a running call waits
        for its end, and shares the next one with others."""
        requests, max_batch, batching = self._context.requests, self._limit.size, self._batching
        if batching is None:
            return requests.admit(max_running=self._max_running, max_batch=max_batch)
        states = [request.state for request in requests.stepping()]
        busy = {batching.get_call(state).key for state in states if _steps_left(state) > 1}
        return requests.admit(
            max_running=self._max_running,
            max_batch=max_batch,
            interleave=batching.interleaves,
            is_ready=lambda request: request.prepared is not None and batching.call_key(request.prepared) not in busy,
        )

    def _encode(self, admitted: Sequence[WaitingRequest[P]]) -> list[ActiveRequest[S]]:
        """Encodes fetched jobs. A batch that fails is tried again in parts, so that only bad jobs fail; a single job
        that does not fit, once more without a step beside it. Raises DeviceBroken.
        """
        requests: list[ActiveRequest[S]] = []
        pending = deque([list(admitted)])
        failed_size, job_too_large = 0, False
        while pending:
            batch = [request for request in pending.popleft() if not request.handle.ended]
            if not batch:
                continue
            try:
                pairs = list(zip(batch, self._encode_batch(batch), strict=True))
            except DeviceBroken:
                raise
            except Exception as error:
                out_of_memory = isinstance(error, OutOfMemory)
                if len(batch) == 1:
                    fail(batch[0].handle, error, self._context.health)
                    job_too_large |= out_of_memory
                    continue
                log.warning("encoding %d jobs failed; tried again in parts", len(batch), exc_info=error)
                failed_size = len(batch) if out_of_memory else failed_size
                size = (len(batch) + 1) // 2 if out_of_memory else 1
                pending.extendleft(reversed([batch[first : first + size] for first in range(0, len(batch), size)]))
                continue
            self._limit.record_success(len(batch))
            for request, result in pairs:
                if isinstance(result, JobError):
                    fail(request.handle, result, self._context.health)
                else:
                    requests.append(ActiveRequest(request.handle, result))
        if failed_size and not job_too_large:
            # A job that is too large by itself says nothing about their number.
            self._limit.record_failure(failed_size)
        return requests

    def _encode_batch(self, batch: Sequence[WaitingRequest[P]]) -> list[S | JobError]:
        prepared = [request.prepared for request in batch if request.prepared is not None]
        with self._context.health.call(Worker.ENCODE, [request.handle for request in batch]):
            return self._context.gate.run(lambda: self._context.backend.encode(prepared), retry=len(batch) == 1)


class JobFetcher(Generic[P, S]):
    """Fetches the inputs of the first `ahead` waiting requests, as these stay in memory until admission."""

    def __init__(self, context: EngineContext[P, S], *, ahead: int) -> None:
        self._context = context
        self._ahead = ahead

    def work(self) -> bool:
        requests = self._context.requests.to_fetch(self._ahead)
        for request in requests:
            self._context.io.run(partial(self._fetch, request))
        return bool(requests)

    def _fetch(self, request: WaitingRequest[P]) -> None:
        if request.handle.ended:
            return
        try:
            prepared = self._fetch_with_retry(request.job)
        except DeviceBroken as error:
            self._context.give_up(error)
        except OutOfMemory:
            # Inputs of one job are no larger than those of others, so other work took the memory.
            request.handle.end(MEMORY_BUSY)
            self._context.requests.drop_ended()
        except Exception as error:
            self._context.fail(request.handle, error)
        else:
            self._context.requests.fetched(request, prepared)

    def _fetch_with_retry(self, job: GenerationJob) -> P:
        try:
            return self._context.backend.fetch(job)
        except OutOfMemory:
            pass
        with self._context.gate.exclusive():
            return self._context.backend.fetch(job)


class Finisher(Generic[P, S]):
    """Decodes and stores results. Not thread-safe; runs beside the stepper."""

    def __init__(self, context: EngineContext[P, S]) -> None:
        self._context = context

    def work(self) -> bool:
        """Finishes one image. Raises DeviceBroken."""
        request = self._context.requests.to_finish(MAX_STORING)
        if request is None:
            return False
        reached = request.handle.reached
        reached[Milestone.FINISHING] = self._context.clock()
        try:
            with self._context.health.call(Worker.FINISH, [request.handle]):
                store = self._context.gate.run(lambda: self._context.backend.finish(request.state))
        except DeviceBroken:
            request.handle.end(DEVICE_BROKEN)
            self._context.requests.remove(request)
            raise
        except Exception as error:
            fail(request.handle, error, self._context.health)
            # After its last event, so that jobs that wait for the end of an exclusive one start behind it.
            self._context.requests.remove(request)
        else:
            reached[Milestone.FINISHED] = self._context.clock()
            self._context.requests.storing(request)
            self._context.io.run(partial(self._store, request, store))
        return True

    def _store(self, request: ActiveRequest[S], store: Callable[[], Output]) -> None:
        handle = request.handle
        if handle.ended:
            self._context.requests.stored(handle)
            return
        try:
            output = replace(store(), previews=request.previews)
        except Exception as error:
            fail(handle, error, self._context.health)
        else:
            self._context.health.record_success(handle.job)
            handle.end(Done(output))
        self._context.requests.stored(handle)


def _steps_left(state: StateLike) -> int:
    return state.total_steps - state.done_steps
