"""The engine's workers: fetcher, encoder, stepper, finisher."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic

from deployments.backend import Backend, DeviceBroken, JobError, OutOfMemory, P, S
from deployments.contract.events import Done, Failed, Preview, Started
from deployments.contract.job import Output
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


class Stepper(Generic[P, S]):
    """Used from one thread alone."""

    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        background: IoPool,
        health: Health,
        device: DeviceGate,
        *,
        costs: StepCosts,
        order: Order,
        priority: DevicePriority,
        preview_every: float | None,
        preview_interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        """As `Engine` has them."""
        self._backend = backend
        self._requests = requests
        self._background = background
        self._health = health
        self._device = device
        self._costs = costs
        self._order: Order = order
        self._priority = priority
        self._preview_every = preview_every
        self._preview_interval_s = preview_interval_s
        self._clock = clock

    def work(self) -> bool:
        """Ends whose time is over, or surely won't do, and takes one step. Raises DeviceBroken."""
        ended = self._expire()
        self._priority.announce(bool(self._requests.waiting or self._requests.running))
        if not self._requests.stepping():
            return ended
        self._priority.wait()
        # Only now: some were cancelled meanwhile, and others came.
        batch = select_batch(self._requests.stepping(), self._clock(), self._costs, self._order)
        if not batch:
            return ended
        self._step(batch)
        return True

    def _expire(self) -> bool:
        """Whether there was any. What only has to be finished is let through."""
        now = self._clock()
        ends: list[tuple[RequestHandle, Failed]] = []
        for handle in self._requests.unfinished():
            left = handle.left(now)
            if left is not None and left <= 0:
                ends.append((handle, DEADLINE_PASSED))
        for request in self._requests.stepping():
            left = request.handle.left(now)
            needed = None if left is None else too_long(request.state, left, self._costs)
            if left is not None and needed is not None:
                ends.append((request.handle, deadline_infeasible(needed, left)))
        for handle, event in ends:
            handle.end(event)  # once: the first is what is told
        self._requests.drop_ended()
        return bool(ends)

    def _step(self, batch: Sequence[ActiveRequest[S]]) -> None:
        """One step of pictures of one key. A step that failed changed nothing: it is taken again in other company."""
        if self._step_batch(batch):
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
            step_s = self._stepped(batch)
        except DeviceBroken:
            raise
        except Exception as error:
            if isinstance(error, OutOfMemory):
                # The pictures stay where they are; the next batch takes fewer of them.
                self._costs.shrink(states)
            if len(batch) == 1:
                fail(batch[0].handle, error, self._health)
                self._requests.drop_ended()
                return True
            log.warning("a step of %d pictures failed; tried again in parts", len(batch), exc_info=error)
            return isinstance(error, OutOfMemory)
        self._costs.observe(states, step_s)
        self._health.stepped(len(batch), step_s)
        for request in batch:
            self._report(request, len(batch), step_s)
            if request.state.done_steps >= request.state.total_steps:
                self._requests.move(request, Stage.STEPPED)
        return True

    def _stepped(self, batch: Sequence[ActiveRequest[S]]) -> float:
        """How long the step took. One that doesn't fit beside other work is taken again without any: whose memory it
        was says nothing of the batch."""
        states, handles = [request.state for request in batch], [request.handle for request in batch]

        def step(*, alone: bool) -> tuple[float, OutOfMemory | None]:
            with self._device.step(alone=alone) as accompanied, self._health.call(Worker.STEPS, handles):
                began = self._clock()
                try:
                    self._backend.step(states)
                except OutOfMemory as error:
                    if not accompanied():
                        raise
                    return 0.0, error
                return self._clock() - began, None

        step_s, crowded = step(alone=False)
        return step(alone=True)[0] if crowded else step_s

    def _report(self, request: ActiveRequest[S], batch: int, step_s: float) -> None:
        now = self._clock()
        request.handle.progress(request.state.done_steps / request.state.total_steps, now, batch, step_s)
        if not self._wants_preview(request, now):
            return
        request.previewed, request.shown_steps = now, request.state.done_steps
        try:
            with self._health.call(Worker.STEPS, [request.handle]):
                store = self._backend.preview(request.state)
        except DeviceBroken:
            raise
        except Exception:
            # A preview is a courtesy; its failure is no reason to lose the picture.
            log.warning("no preview of job %s", request.job.id, exc_info=True)
            return
        if store is not None:
            request.previewing = True
            self._background.run(partial(self._store_preview, request, store))

    def _wants_preview(self, request: ActiveRequest[S], now: float) -> bool:
        if self._preview_every is None or request.handle.ended:
            return False
        if request.previewing:  # the store is slow, and the next one will say more
            return False
        since = request.handle.reached[Milestone.ADMITTED] if request.previewed is None else request.previewed
        if now - since < self._preview_interval_s:  # nobody could look at it before there is more to see
            return False
        return preview_due(
            request.state.done_steps, request.state.total_steps, self._preview_every, request.shown_steps
        )

    def _store_preview(self, request: ActiveRequest[S], store: Callable[[], Preview]) -> None:
        try:
            request.handle.send(store())
        except Exception:
            log.warning("no preview of job %s", request.job.id, exc_info=True)
        request.previewing = False


class Encoder(Generic[P, S]):
    """Used from one thread alone, while another one takes steps."""

    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        health: Health,
        device: DeviceGate,
        *,
        max_running: int,
        max_batch: int,
    ) -> None:
        """Raises ValueError for `max_batch` below one."""
        self._backend = backend
        self._requests = requests
        self._health = health
        self._device = device
        self._max_running = max_running
        self._limit = MemoryLimit(max_batch)

    def work(self) -> bool:
        """Admits who may join, as many as are believed to fit into memory together, and encodes them. Raises
        DeviceBroken."""
        admitted = self._requests.admit(max_running=self._max_running, at_most=self._limit.size)
        if not admitted:
            return False
        now = self._health.now()
        for request in admitted:
            request.handle.reached[Milestone.ADMITTED] = now
            request.handle.send(Started())
        encoded: list[ActiveRequest[S]] = []
        try:
            encoded = self._encode(admitted)
            now = self._health.now()
            for request in encoded:
                request.handle.reached[Milestone.ENCODED] = now
                if request.state.done_steps >= request.state.total_steps:  # one that was resumed
                    request.stage = Stage.STEPPED
        except DeviceBroken:
            for request in admitted:
                request.handle.end(DEVICE_BROKEN)
            raise
        finally:
            self._requests.encoded(encoded)
        return True

    def _encode(self, admitted: Sequence[WaitingRequest[P]]) -> list[ActiveRequest[S]]:
        """Makes pictures of jobs that were fetched. A batch that fails is tried again in parts, so that only bad jobs
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
                pairs = list(zip(batch, self._encoded(batch), strict=True))
            except DeviceBroken:
                raise
            except Exception as error:
                memory = isinstance(error, OutOfMemory)
                if len(batch) == 1:
                    fail(batch[0].handle, error, self._health)
                    one_too_large |= memory
                    continue
                log.warning("encoding %d jobs failed; tried again in parts", len(batch), exc_info=error)
                too_many = len(batch) if memory else too_many
                size = (len(batch) + 1) // 2 if memory else 1
                pending.extendleft(reversed([batch[first : first + size] for first in range(0, len(batch), size)]))
                continue
            self._limit.fitted(len(batch))
            for request, result in pairs:
                if isinstance(result, JobError):
                    fail(request.handle, result, self._health)
                else:
                    requests.append(ActiveRequest(request.handle, result))
        if too_many and not one_too_large:
            # Otherwise it was the one job and not the number of them.
            self._limit.failed(too_many)
        return requests

    def _encoded(self, batch: Sequence[WaitingRequest[P]]) -> list[S | JobError]:
        prepared = [request.prepared for request in batch if request.prepared is not None]
        with self._health.call(Worker.ENCODE, [request.handle for request in batch]):
            try:
                with self._device.beside():
                    return self._backend.encode(prepared)
            except OutOfMemory:
                if len(batch) > 1:
                    raise
            with self._device.alone():
                return self._backend.encode(prepared)


class Fetcher(Generic[P, S]):
    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        background: IoPool,
        health: Health,
        device: DeviceGate,
        *,
        ahead: int,
        broken: Callable[[DeviceBroken], None],
    ) -> None:
        """Fetches for the first `ahead` that wait: what was fetched is in memory until it is encoded. Calls `broken`
        where the device is."""
        self._backend = backend
        self._requests = requests
        self._background = background
        self._health = health
        self._device = device
        self._broken = broken
        self._ahead = ahead

    def work(self) -> bool:
        found = self._requests.to_fetch(self._ahead)
        for request in found:
            self._background.run(partial(self._fetch, request))
        return bool(found)

    def _fetch(self, request: WaitingRequest[P]) -> None:
        if request.handle.ended:
            return
        try:
            prepared = self._fetched(request)
        except DeviceBroken as error:
            self._broken(error)
        except OutOfMemory:
            # Of what the job needs on the device: it is no larger than that of others.
            request.handle.end(NO_ROOM)
            self._requests.drop_ended()
        except Exception as error:
            fail(request.handle, error, self._health)
            self._requests.drop_ended()
        else:
            self._requests.fetched(request, prepared)

    def _fetched(self, request: WaitingRequest[P]) -> P:
        try:
            return self._backend.fetch(request.job)
        except OutOfMemory:
            pass
        with self._device.alone():
            return self._backend.fetch(request.job)


MAX_STORING: Final = 64
"""Pictures on their way to the store; the next is finished once there are fewer."""


class Finisher(Generic[P, S]):
    """Used from one thread alone, while another one takes steps."""

    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        background: IoPool,
        health: Health,
        device: DeviceGate,
    ) -> None:
        self._backend = backend
        self._requests = requests
        self._background = background
        self._health = health
        self._device = device

    def work(self) -> bool:
        """Finishes one picture. Raises DeviceBroken."""
        request = self._requests.to_finish(MAX_STORING)
        if request is None:
            return False
        reached = request.handle.reached
        reached[Milestone.FINISHING] = self._health.now()
        try:
            store = self._finished(request)
        except DeviceBroken:
            request.handle.end(DEVICE_BROKEN)
            self._requests.remove(request)
            raise
        except Exception as error:
            fail(request.handle, error, self._health)
            # Only after its last event: whoever waits for an exclusive job to end starts behind it.
            self._requests.remove(request)
        else:
            reached[Milestone.FINISHED] = self._health.now()
            self._requests.storing(request)
            self._background.run(partial(self._store, request.handle, store))
        return True

    def _finished(self, request: ActiveRequest[S]) -> Callable[[], Output]:
        with self._health.call(Worker.FINISH, [request.handle]):
            try:
                with self._device.beside():
                    return self._backend.finish(request.state)
            except OutOfMemory:
                pass
            with self._device.alone():
                return self._backend.finish(request.state)

    def _store(self, handle: RequestHandle, store: Callable[[], Output]) -> None:
        if handle.ended:
            self._requests.stored(handle)
            return
        try:
            output = store()
        except Exception as error:
            fail(handle, error, self._health)
        else:
            self._health.succeeded(handle.job)
            handle.end(Done(output))
        self._requests.stored(handle)
