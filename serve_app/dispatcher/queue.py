"""One model's queue in a dispatcher: leases tasks, prolongs leases, stops and drains attempts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deployments.contract.model_fault import ModelFault
from serve_app.background import idle, rest
from serve_app.dispatcher.attempt import Attempt, AttemptContext, Phase
from serve_app.dispatcher.concurrency import AttemptKey
from serve_app.dispatcher.failures import REQUEUE
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease

logger = logging.getLogger(__name__)

_RELEASE_TIMEOUT_S: Final = 5.0
"""Seconds to give back what a drain has stopped."""


@dataclass(frozen=True, slots=True)
class DeviceTurn:
    """A model's turns on a device that has memory for one of the models in `queues` at a time."""

    store: TaskStore
    device: str
    turn_s: float
    queues: Sequence[str]

    async def has(self, queue: str) -> bool:
        return await self.store.device_turn(self.device, self.turn_s, self.queues) == queue


class QueueConsumer:
    def __init__(
        self, context: AttemptContext, max_leased: int, turn: DeviceTurn | None = None, dispatcher: str = ""
    ) -> None:
        """`max_leased` limits the tasks leased by all dispatchers. The store wakes `dispatcher` by its name."""
        self.name = context.queue
        self.wake = asyncio.Event()
        self._context = context
        self._store = context.store
        self._limiter = context.limiter
        self._max_leased = max_leased
        self._turn = turn
        self._dispatcher = dispatcher
        self._was_woken = False
        """The store has woken this dispatcher, and no other, for a task."""
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._faulty_since: float | None = None
        self._fault: str | None = None
        """Error that ends tasks at once: the model could not be loaded for too long."""

    @property
    def waits_for_replica(self) -> bool:
        """True while attempts need the model to be loaded."""
        return self._faulty_since is not None or any(
            attempt.phase is Phase.STARTING for attempt in self._attempts.values()
        )

    def note_fault(self, fault: ModelFault | None, now: float) -> None:
        """Takes in why no replica can be started, or None if nothing is known to prevent it; `now` is monotonic."""
        if fault is None:
            self._faulty_since = self._fault = None
            return
        self._faulty_since = now if self._faulty_since is None else self._faulty_since
        if now - self._faulty_since >= self._store.limits.model_broken_s:
            self._fault = fault.for_clients
            self._cancel_starting()  # they are given back, and end with their next lease

    async def lease(self) -> None:
        """Leases tasks as long as few of them wait for a replica to begin."""
        closed = self._limiter.closed
        while not closed.is_set():
            # Cleared first, so that a wake-up that comes meanwhile is not lost.
            self.wake.clear()
            capacity, was_woken, self._was_woken = max(0, self._limiter.capacity()), self._was_woken, False
            if capacity and self._turn is not None and not await self._turn.has(self.name):
                capacity = 0
            leases = list[Lease]()
            if capacity or was_woken:
                leases = await self._store.lease(self.name, capacity, self._max_leased, self._dispatcher)
            # A queue that got fewer than it can take is woken by the store.
            self._limiter.capacity_freed = None if len(leases) < capacity else self.wake
            for lease in leases:
                attempt = Attempt(self._context, lease, self._fault)
                if closed.is_set():
                    await attempt.release(REQUEUE)
                    continue
                self._attempts[attempt.key] = attempt
                self._limiter.admit(attempt.key)
                task = asyncio.create_task(self._run(attempt))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            # Attempts that need no preparation call the model now, and count so for the capacity.
            await asyncio.sleep(0)
            if len(leases) < capacity or not capacity:
                with idle():
                    await self.wake.wait()
        # The store wakes another dispatcher from now on.
        await self._store.lease(self.name, 0, self._max_leased, self._dispatcher)

    async def _run(self, attempt: Attempt) -> None:
        try:
            await attempt.run()
        except Exception:
            logger.exception("%s, attempt %d, is left to the reaper", *attempt.key)
        finally:
            del self._attempts[attempt.key]

    def on_wake(self) -> None:
        """Leases at once: there may be a task that the store has announced to no other dispatcher."""
        self._was_woken = True
        self.wake.set()

    async def heartbeat(self) -> None:
        """Prolongs the leases, and stops attempts whose lease is lost."""
        while True:
            # By attempt: the next attempt at a task may be leased here before the last one has cleaned up.
            attempts = dict(self._attempts)
            for key in await self._store.heartbeat(self.name, list(attempts)):
                attempts[key].stop()
            await rest(self._store.limits.lease_s / 4)

    async def report(self) -> None:
        await self._context.reports.flush(self._store, self.name)

    def stop(self, task_id: str) -> None:
        """Stops the work on a task that was cancelled or passed its deadline."""
        for (running, _), attempt in list(self._attempts.items()):
            if running == task_id:
                attempt.stop(task_ended=True)

    async def drain(self, limit_s: float) -> None:
        """Gives back tasks that the model has not begun with, waits for the others, gives back the rest."""
        self._limiter.close()
        self.wake.set()
        self._cancel_starting()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        for attempt in list(self._attempts.values()):
            if attempt.stream is not None:
                attempt.stream.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_RELEASE_TIMEOUT_S)
        # Those that wait for moderation or a store. A lease that expired would count as a crash.
        attempts = [each for each in self._attempts.values() if each.phase not in (Phase.PUBLISHING, Phase.OVER)]
        for attempt in attempts:
            attempt.cancel_work()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await asyncio.gather(*(attempt.release(REQUEUE) for attempt in attempts))

    def _cancel_starting(self) -> None:
        for attempt in self._attempts.values():
            if attempt.phase is Phase.STARTING and attempt.stream is not None:
                attempt.stream.cancel()
