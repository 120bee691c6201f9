"""Takes steps, and does nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic

from deployments.contract.events import Failed, Preview
from deployments.contract.model import Order
from deployments.engine.backend import Backend, DeviceBroken, OutOfMemory, P, S
from deployments.engine.background import Background
from deployments.engine.device_priority import DevicePriority
from deployments.engine.exclusive import Exclusive
from deployments.engine.failures import DEADLINE_PASSED, fail, hopeless
from deployments.engine.health import Health, Worker
from deployments.engine.policy import preview_due, select_batch, too_long
from deployments.engine.request_handle import Reached, RequestHandle
from deployments.engine.request_table import ActiveRequest, RequestTable, Stage
from deployments.engine.step_costs import StepCosts

log = logging.getLogger(__name__)


class Stepper(Generic[P, S]):
    """Used from one thread alone."""

    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        background: Background,
        health: Health,
        device: Exclusive,
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
                ends.append((request.handle, hopeless(needed, left)))
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
        since = request.handle.reached[Reached.ADMITTED] if request.previewed is None else request.previewed
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
