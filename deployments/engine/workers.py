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
from deployments.engine.requests import (
    DEADLINE_PASSED,
    DEVICE_BROKEN,
    NO_ROOM,
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
from deployments.engine.scheduler import MemoryLimit, StepCosts, preview_due, select_batch, too_long

log = logging.getLogger(__name__)

MAX_STORING: Final = 64
"""Images on their way to the store; the next is finished once there are fewer."""


@dataclass(frozen=True, slots=True)
class EngineContext(Generic[P, S]):
    """What the workers of one engine share. It never refers to the engine, so that a dropped one is freed."""

    backend: Backend[P, S]
    requests: RequestTable[P, S]
    health: Health
    gate: DeviceGate
    io: IoPool
    clock: Callable[[], float]

    def fail(self, handle: RequestHandle, error: Exception) -> None:
        """Ends the one request that `error` belongs to."""
        fail(handle, error, self.health)
        self.requests.drop_ended()

    def end_all(self, handles: Iterable[RequestHandle], event: Failed | Interrupted) -> None:
        for handle in handles:
            handle.end(event)
        self.requests.drop_ended()

    def give_up(self, error: DeviceBroken) -> None:
        """Ends every request without blame: the device broke, and none of them can go on here."""
        self.health.device_broke()
        log.critical("the device is broken; nothing more can run in this process", exc_info=error)
        self.end_all(self.requests.handles(), DEVICE_BROKEN)


class Stepper(Generic[P, S]):
    """Takes steps with the running batch. Used from one thread alone."""

    def __init__(
        self,
        context: EngineContext[P, S],
        *,
        costs: StepCosts,
        order: Order,
        priority: DevicePriority,
        preview_every: float | None,
        preview_interval_s: float,
        batching: StaticBatching[P, S] | None,
    ) -> None:
        """The settings of `Engine`."""
        self._batching = batching
        self._context = context
        self._costs = costs
        self._order: Order = order
        self._priority = priority
        self._preview_every = preview_every
        self._preview_interval_s = preview_interval_s

    def work(self) -> bool:
        """Ends whose time is over, or surely won't do, and takes one step. Raises DeviceBroken."""
        ended = self._expire()
        self._priority.announce(bool(self._context.requests.waiting or self._context.requests.running))
        if not self._context.requests.stepping():
            return ended
        self._priority.wait()
        # Only now: some were cancelled meanwhile, and others came.
        batch = self._select()
        if not batch:
            return ended
        self._step(batch)
        return True

    def _select(self) -> list[ActiveRequest[S]]:
        """Returns who takes the next step together. Where the backend has made batches, the first in order brings its
        own, unless another must end before. Of a batch that failed each member goes on alone."""
        stepping = self._context.requests.stepping()
        batch = select_batch(stepping, self._context.clock(), self._costs, self._order)
        if self._batching is None or not batch:
            return batch
        calls = {request: self._batching.call_of(request.state) for request in stepping}
        current = self._batching.current_call
        own = current if current in calls.values() else calls[batch[0]]
        members = [request for request, call in calls.items() if call is own]
        return members[:1] if own is not None and own.failed else members

    def _expire(self) -> bool:
        """Whether there was any. What only has to be finished is let through."""
        now = self._context.clock()
        ends: list[tuple[RequestHandle, Failed]] = []
        for handle in self._context.requests.unfinished():
            remaining = handle.remaining(now)
            if remaining is not None and remaining <= 0:
                ends.append((handle, DEADLINE_PASSED))
        for request in self._context.requests.stepping():
            remaining = request.handle.remaining(now)
            needed = None if remaining is None else too_long(request.state, remaining, self._costs)
            if remaining is not None and needed is not None:
                ends.append((request.handle, deadline_infeasible(needed, remaining)))
        for handle, event in ends:
            handle.end(event)  # once: the first is what is told
        self._context.requests.drop_ended()
        return bool(ends)

    def _step(self, batch: Sequence[ActiveRequest[S]]) -> None:
        """One step of images of one key. A step that failed changed nothing: it is taken again in other company."""
        if self._step_batch(batch) or self._batching is not None:
            return
        for request in batch:
            if not request.handle.ended:
                self._step_batch([request])
        if not any(request.handle.ended for request in batch):
            # None of them was bad, so the size was: it would fail at every step.
            self._costs.shrink([request.state for request in batch])

    def _step_batch(self, batch: Sequence[ActiveRequest[S]]) -> bool:
        """False when the step failed in a way that only single steps can explain."""
        states = [request.state for request in batch]
        try:
            step_s = self._run_step(batch)
        except DeviceBroken:
            raise
        except Exception as error:
            if isinstance(error, OutOfMemory):
                # The images stay where they are; the next batch takes fewer of them.
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
            self._context.requests.wake()  # the next call of this kind is encoded meanwhile
        return True

    def _run_step(self, batch: Sequence[ActiveRequest[S]]) -> float:
        """How long the step took. One that doesn't fit beside other work is taken again without any: whose memory it
        was says nothing of the batch."""
        states, handles = [request.state for request in batch], [request.handle for request in batch]

        def step(*, alone: bool) -> tuple[float, OutOfMemory | None]:
            with self._context.gate.step(alone=alone) as accompanied, self._context.health.call(Worker.STEPS, handles):
                began = self._context.clock()
                try:
                    self._context.backend.step(states)
                except OutOfMemory as error:
                    if not accompanied():
                        raise
                    return 0.0, error
                return self._context.clock() - began, None

        step_s, crowded = step(alone=False)
        return step(alone=True)[0] if crowded else step_s

    def _report(self, request: ActiveRequest[S], batch: int, step_s: float) -> None:
        now = self._context.clock()
        request.handle.progress(request.state.done_steps / request.state.total_steps, now, batch, step_s)
        if not self._wants_preview(request, now):
            return
        request.previewed, request.previews = now, (*request.previews, request.state.done_steps)
        try:
            with self._context.health.call(Worker.STEPS, [request.handle]):
                store = self._context.backend.preview(request.state)
        except DeviceBroken:
            raise
        except Exception:
            # A preview is a courtesy; its failure is no reason to lose the image.
            log.warning("no preview of job %s", request.job.id, exc_info=True)
            return
        if store is not None:
            request.previewing = True
            self._context.io.run(partial(self._store_preview, request, store))

    def _wants_preview(self, request: ActiveRequest[S], now: float) -> bool:
        if self._preview_every is None or request.handle.ended:
            return False
        if request.previewing:  # the store is slow, and the next one will say more
            return False
        since = request.handle.reached[Milestone.ADMITTED] if request.previewed is None else request.previewed
        if now - since < self._preview_interval_s:  # nobody could look at it before there is more to see
            return False
        return preview_due(
            request.state.done_steps, request.state.total_steps, self._preview_every, max(request.previews, default=0)
        )

    def _store_preview(self, request: ActiveRequest[S], store: Callable[[], Preview]) -> None:
        try:
            request.handle.send(store())
        except Exception:
            log.warning("no preview of job %s", request.job.id, exc_info=True)
        request.previewing = False


class Encoder(Generic[P, S]):
    """Admits and encodes requests. Used from one thread alone, while another one takes steps."""

    def __init__(
        self,
        context: EngineContext[P, S],
        *,
        max_running: int,
        max_batch: int,
        batching: StaticBatching[P, S] | None,
    ) -> None:
        """Raises ValueError for `max_batch` below one."""
        self._batching = batching
        self._context = context
        self._max_running = max_running
        self._limit = MemoryLimit(max_batch)

    def work(self) -> bool:
        """Admits who may join, as many as are believed to fit into memory together, and encodes them. Raises
        DeviceBroken."""
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
                if request.state.done_steps >= request.state.total_steps:  # one that was resumed
                    request.stage = Stage.DENOISED
        except DeviceBroken:
            for request in admitted:
                request.handle.end(DEVICE_BROKEN)
            raise
        finally:
            self._context.requests.encoded(encoded)
        return True

    def _admit(self) -> list[WaitingRequest[P]]:
        """Admits those whose time it is. As the call of a backend can't grow, a job waits for the end of one that it
        could have shared, and meets others there."""
        requests, most, batching = self._context.requests, self._limit.size, self._batching
        if batching is None:
            return requests.admit(max_running=self._max_running, at_most=most)
        states = [request.state for request in requests.stepping()]
        busy = {batching.call_of(state).kind for state in states if _steps_left(state) > 1}
        return requests.admit(
            max_running=self._max_running,
            at_most=most,
            interleave=batching.interleaves,
            ready=lambda request: request.prepared is not None and batching.kind_of(request.prepared) not in busy,
        )

    def _encode(self, admitted: Sequence[WaitingRequest[P]]) -> list[ActiveRequest[S]]:
        """Makes images of jobs that were fetched. A batch that fails is tried again in parts, so that only bad jobs
        fail; one that does not fit alone, once more without a step beside it. Raises DeviceBroken.
        """
        requests: list[ActiveRequest[S]] = []
        pending = deque([list(admitted)])
        too_many, one_too_large = 0, False
        while pending:
            batch = [request for request in pending.popleft() if not request.handle.ended]
            if not batch:
                continue
            try:
                pairs = list(zip(batch, self._encode_batch(batch), strict=True))
            except DeviceBroken:
                raise
            except Exception as error:
                memory = isinstance(error, OutOfMemory)
                if len(batch) == 1:
                    fail(batch[0].handle, error, self._context.health)
                    one_too_large |= memory
                    continue
                log.warning("encoding %d jobs failed; tried again in parts", len(batch), exc_info=error)
                too_many = len(batch) if memory else too_many
                size = (len(batch) + 1) // 2 if memory else 1
                pending.extendleft(reversed([batch[first : first + size] for first in range(0, len(batch), size)]))
                continue
            self._limit.record_success(len(batch))
            for request, result in pairs:
                if isinstance(result, JobError):
                    fail(request.handle, result, self._context.health)
                else:
                    requests.append(ActiveRequest(request.handle, result))
        if too_many and not one_too_large:
            # Otherwise it was the one job and not the number of them.
            self._limit.record_failure(too_many)
        return requests

    def _encode_batch(self, batch: Sequence[WaitingRequest[P]]) -> list[S | JobError]:
        prepared = [request.prepared for request in batch if request.prepared is not None]
        with self._context.health.call(Worker.ENCODE, [request.handle for request in batch]):
            return self._context.gate.run(lambda: self._context.backend.encode(prepared), retry=len(batch) == 1)


class Fetcher(Generic[P, S]):
    """Fetches what requests need from elsewhere: for the first `ahead` that wait, as it stays in memory until then."""

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
            # Of what the job needs on the device: it is no larger than that of others.
            request.handle.end(NO_ROOM)
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
        with self._context.gate.alone():
            return self._context.backend.fetch(job)


class Finisher(Generic[P, S]):
    """Decodes and stores results. Used from one thread alone, while another one takes steps."""

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
            # Only after its last event: whoever waits for an exclusive job to end starts behind it.
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
            self._context.health.succeeded(handle.job)
            handle.end(Done(output))
        self._context.requests.stored(handle)


def _steps_left(state: StateLike) -> int:
    return state.total_steps - state.done_steps
