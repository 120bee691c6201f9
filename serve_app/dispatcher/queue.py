"""One model's queue in a dispatcher: leases, concurrency, attempts in flight."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError
from redis.exceptions import RedisError

from deployments.contract.model_fault import ModelFault
from deployments.telemetry import logs
from deployments.telemetry.tracing import trace_id
from serve_app.background import idle, rest
from serve_app.config.model_settings import ModelSettings
from serve_app.config.settings import DispatcherSettings
from serve_app.dispatcher.attempt import (
    Aborted,
    Attempt,
    Broke,
    Dependencies,
    NotStarted,
    Stale,
    Unavailable,
    WorkerLost,
    run_attempt,
)
from serve_app.tasks.payload import NewerPayload
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease

logger = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, int]

_AT_LEAST_S: Final = 1.0
"""A run is taken to last, while none has ended: models begin with whole batches at a time."""
_SHORTEST_S: Final = 0.001
_NEWEST_COUNTS: Final = 0.2
"""Weight of the newest in the mean times that preparing and running take."""
_AT_FIRST: Final = 4
"""Tasks prepared at a time while nothing is known of the start rate, as a multiple of the headroom."""
_AMPLE: Final = 2
"""Times what Little's law asks for: the start rate can only grow if more are prepared than it needs."""


class Flow:
    """The attempts of one queue in one process, from their lease to their end.

    `headroom` bounds those that the model was called for and has not begun with; `max_preparing` those that are being
    prepared, whatever the start rate.
    """

    def __init__(self, headroom: int, max_preparing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._headroom = headroom
        self._max_preparing = max_preparing
        self._clock = clock
        self._preparing: dict[Key, float] = {}
        self._ready: dict[Key, asyncio.Event] = {}
        self._starting: set[Key] = set()
        self._running: dict[Key, float] = {}
        self._preparing_s = 0.0
        self._running_s: float | None = None
        self._open = True

    def room(self) -> int:
        """How many tasks to lease now; none if not positive."""
        ahead = self._ahead()
        backlog = len(self._ready) + len(self._starting) - self._headroom
        preparing = min(max(_AT_FIRST * self._headroom, ahead), self._max_preparing) - len(self._preparing)
        return min(ahead - backlog, preparing - max(0, backlog))

    def enter(self, key: Key) -> None:
        """The attempt was leased."""
        self._preparing[key] = self._clock()

    async def turn(self, key: Key) -> None:
        """The attempt is prepared. Returns when the model may be called for it: first prepared, first called."""
        took_s = self._clock() - self._preparing.pop(key)
        self._preparing_s += _NEWEST_COUNTS * (took_s - self._preparing_s)
        turn = self._ready[key] = asyncio.Event()
        self._grant_turns()
        await turn.wait()

    def start(self, key: Key) -> None:
        """The model has begun with it."""
        self._running[key] = self._clock()
        self._starting.discard(key)
        self._grant_turns()

    def leave(self, key: Key) -> None:
        """The attempt is over. May be told more than once."""
        began = self._running.pop(key, None)
        if began is not None:
            took_s = self._clock() - began
            mean_s = took_s if self._running_s is None else self._running_s
            self._running_s = mean_s + _NEWEST_COUNTS * (took_s - mean_s)
        self._preparing.pop(key, None)
        self._ready.pop(key, None)
        self._starting.discard(key)
        self._grant_turns()

    def close(self) -> None:
        """Nobody waits for a turn any more: whoever gets one looks whether it may still be taken."""
        self._open = False
        self._grant_turns()

    def _grant_turns(self) -> None:
        while self._ready and (len(self._starting) < self._headroom or not self._open):
            key = next(iter(self._ready))
            self._starting.add(key)
            self._ready.pop(key).set()

    def _ahead(self) -> int:
        """What the model will have begun with by the time that a task leased now is prepared, and as much again."""
        return min(round(_AMPLE * self._starts_per_s() * self._preparing_s), self._max_preparing)

    def _starts_per_s(self) -> float:
        if not self._running:
            return 0.0
        if self._running_s is not None:
            return len(self._running) / max(self._running_s, _SHORTEST_S)
        oldest = next(iter(self._running.values()))
        return len(self._running) / max(self._clock() - oldest, _AT_LEAST_S)


_LOST = (RayActorError, RayTaskError, WorkerLost)
"""The worker died, hung, or broke in a way the engine did not account for."""
_NOT_ITS_FAULT = (NotStarted, RequestCancelledError)
_PAUSE = (NewerPayload, Unavailable, BackPressureError, DeploymentUnavailableError)
"""Trying again at once would most likely end the same way."""
_PAUSE_S = 1.0
_AGAIN_S = 0.5
_LAST_S = 5.0
"""For what a drain has stopped to be given back."""
_LONGEST_PAUSE = 10
"""As a multiple. A broken replica is soon replaced, so pauses begin short."""


class ModelQueue:
    def __init__(
        self,
        name: str,
        store: TaskStore,
        dependencies: Dependencies,
        settings: DispatcherSettings,
        model: ModelSettings,
        has_turn: Callable[[], Awaitable[bool]] | None = None,
        dispatcher: str = "",
    ) -> None:
        """`has_turn`: whether it is the model's turn, where models take turns on a device. Asked before each lease.
        `dispatcher` is the name by which the store wakes it."""
        self.name = name
        self.wake = asyncio.Event()
        self._store = store
        self._dependencies = replace(dependencies, on_report=self._on_report, on_step=self._on_step)
        self._counts: Counter[str] = Counter()
        self._setup: Mapping[str, str] = {}
        self._last_step: tuple[int, float] | None = None
        self._flow = Flow(settings.headroom, settings.max_preparing)
        # Enough to keep every replica full and, by the headroom, to ask for one more.
        ahead = settings.headroom + settings.max_preparing
        self._max_leased = model.max_running * model.max_replicas + ahead * settings.num_replicas
        self._has_turn = has_turn
        self._dispatcher = dispatcher
        self._called = False
        """The store has woken it since its last lease, and for this task nobody else."""
        self._listed = False
        """The store wakes it for the next task: there was none left at its last lease."""
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._broken_after_s = store.limits.model_broken_s
        self._faulty_since: float | None = None
        self._fault: str | None = None
        """Why its tasks end at once: the model has not been loaded for too long."""

    @property
    def waits_for_replica(self) -> bool:
        """Whether it is of interest if the model can be loaded."""
        return self._faulty_since is not None or any(each.stream and not each.started for each in self._list())

    def note_fault(self, fault: ModelFault | None, now: float) -> None:
        """Takes note of why no replica can be started now, or that nothing speaks against it; `now` is monotonic."""
        if fault is None:
            self._faulty_since = self._fault = None
            return
        self._faulty_since = now if self._faulty_since is None else self._faulty_since
        if now - self._faulty_since < self._broken_after_s:
            return
        self._fault = fault.for_clients
        for attempt in self._list():
            if attempt.stream is not None and not attempt.started:
                attempt.stream.cancel()  # it is given back, and ends with its next lease

    def _list(self) -> list[Attempt]:
        return list(self._attempts.values())

    async def lease(self) -> None:
        """Takes tasks as long as few of those taken are still waiting for a replica to begin."""
        while not self._draining:
            # Cleared before looking, so that a wake-up that comes meanwhile is not lost.
            self.wake.clear()
            room, called, self._called = max(0, self._flow.room()), self._called, False
            if room and self._has_turn is not None and not await self._has_turn():
                room = 0
            leases = await self._lease(room) if room or called else []
            self._listed = len(leases) < room
            for lease in leases:
                if self._draining:
                    await self._store.release(self.name, lease.id, lease.attempt, crash=False)
                else:
                    self._start(lease)
            # Those that need no preparing are committed now, and count as such when there is room to be found.
            await asyncio.sleep(0)
            if self._listed or not room:
                with idle():
                    await self.wake.wait()
        await self._lease(0)  # somebody else is to be woken

    def call(self) -> None:
        """There may be a task that no other dispatcher was told of."""
        self._called = True
        self.wake.set()

    async def _lease(self, room: int) -> list[Lease]:
        return await self._store.lease(self.name, room, self._max_leased, self._dispatcher)

    async def heartbeat(self) -> None:
        """Prolongs the leases; work whose lease is lost stops."""
        while True:
            attempts = dict(self._attempts)
            for key in await self._store.heartbeat(self.name, list(attempts)):
                attempt = attempts[key]
                if not attempt.completing:
                    logger.info("lost the lease of %s, attempt %d: its work stops", *key)
                    attempt.stop()
            await rest(self._store.limits.lease_s / 4)

    async def report(self) -> None:
        """Stores what replicas told of themselves since the last call; it is lost where the store is out of reach."""
        counts, self._counts = self._counts, Counter()
        last_step, self._last_step = self._last_step, None
        if counts or last_step:
            await self._store.report(self.name, counts, self._setup, last_step)

    def _on_step(self, batch: int, step_s: float) -> None:
        self._last_step = batch, step_s

    def _on_report(self, counts: Mapping[str, float], setup: Mapping[str, str]) -> None:
        self._counts.update(counts)
        self._setup = setup

    def stop(self, task_id: str) -> None:
        """Stops the work on a task that was cancelled or ran out of time."""
        for (running, _), attempt in list(self._attempts.items()):
            if running == task_id:
                attempt.ended = True
                attempt.stop()

    async def drain(self, limit_s: float) -> None:
        """Gives back what has not begun, waits for what has, gives back what is left after `limit_s`."""
        self._draining = True
        self.wake.set()
        self._flow.close()
        for attempt in self._attempts.values():
            if not attempt.started and attempt.stream is not None:
                attempt.stream.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        for attempt in list(self._attempts.values()):
            if attempt.stream is not None:
                attempt.stream.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_S)
        await self._release_rest()

    async def _release_rest(self) -> None:
        """Tasks that wait for moderation or a store. A lease of theirs that ran out would count as a crash."""
        attempts = [attempt for attempt in self._attempts.values() if not attempt.completing]
        for attempt in attempts:
            if attempt.work is not None:
                attempt.work.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await asyncio.gather(*(self._release(attempt, NotStarted()) for attempt in attempts))

    def _start(self, lease: Lease) -> None:
        attempt = Attempt(self.name, lease)
        # By attempt: the next attempt of the same task may be leased here before this one has cleaned up.
        self._attempts[attempt.key] = attempt
        self._flow.enter(attempt.key)
        task = attempt.work = asyncio.create_task(self._run(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, attempt: Attempt) -> None:
        lease = attempt.lease
        logs.about(
            task=lease.id,
            project=lease.project,
            queue=self.name,
            attempt=lease.attempt,
            trace=trace_id(lease.traceparent),
        )
        try:
            await self._attempt(attempt)
        except asyncio.CancelledError:
            if not attempt.stopped:
                raise
        except Stale:
            logger.info("%s, attempt %d, belongs to someone else by now or has ended", *attempt.key)
        except _NOT_ITS_FAULT as reason:
            await self._release(attempt, reason)
        except Aborted as reason:
            await asyncio.sleep(_PAUSE_S * min(attempt.lease.attempt, _LONGEST_PAUSE))
            # What was refused before it began says nothing, however often: a broken replica refuses all.
            await self._release(attempt, reason, interrupted=attempt.started, why=str(reason))
        except _PAUSE as reason:
            await asyncio.sleep(_PAUSE_S)
            await self._release(attempt, reason)
        except Broke as reason:
            # The engine made sure that nothing else was to blame, so it counts as a crash the task suffered alone.
            await self._release(attempt, reason, crash=True, alone=True, why=str(reason))
        except _LOST as reason:
            await self._release(attempt, reason, crash=True, alone=attempt.lease.exclusive and attempt.started)
        except Exception as reason:
            logger.exception("attempting %s failed", attempt.lease.id)
            await self._release(attempt, reason, crash=True)
        finally:
            if attempt.stream is not None:
                attempt.stream.cancel()
            del self._attempts[attempt.key]
            self._flow.leave(attempt.key)
            self._lease_more()

    async def _attempt(self, attempt: Attempt) -> None:
        lease, tracer = attempt.lease, self._dependencies.tracer
        if lease.attempt == 1:
            tracer.record("queue", lease.traceparent, lease.created, lease.began, attempt.attributes)
        with tracer.span("attempt", lease.traceparent, attempt.attributes, "consumer") as span:
            attempt.traceparent = span.traceparent
            await run_attempt(
                attempt,
                self._dependencies,
                self._store,
                turn=lambda: self._flow.turn(attempt.key),
                on_start=lambda: self._on_start(attempt),
                draining=lambda: self._draining,
                fault=self._fault,
            )

    def _on_start(self, attempt: Attempt) -> None:
        self._flow.start(attempt.key)
        self._lease_more()

    def _lease_more(self) -> None:
        """There may be more room."""
        if not self._listed:
            self.wake.set()

    async def _release(
        self,
        attempt: Attempt,
        reason: Exception,
        *,
        crash: bool = False,
        alone: bool = False,
        interrupted: bool = False,
        why: str = "",
    ) -> None:
        """Insists while the task is this attempt's: a lease that ran out instead would be a crash."""
        how = {"crash": crash, "alone": alone, "interrupted": interrupted, "reason": why}
        outcome = 0
        while not attempt.stopped:
            try:
                outcome = await self._store.release(self.name, *attempt.key, **how)
                break
            except RedisError as problem:
                logger.warning("could not give back %s yet: %s", attempt.lease.id, type(problem).__name__)
                await asyncio.sleep(_AGAIN_S)
        if outcome:
            logger.warning("gave back %s, attempt %d (crash: %s): %s", *attempt.key, crash, type(reason).__name__)
