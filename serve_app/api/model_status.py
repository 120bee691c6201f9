"""States and waits of models, and etas of tasks. Each queue is read at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

from deployments.contract.counts import ReplicaCounts
from serve_app.api.single_flight import SingleFlightCache
from serve_app.tasks.estimates import QueueForecast, eta_details, find_position, read_forecast
from serve_app.tasks.queue_load import get_queue_load
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.windows import WindowReader

logger = logging.getLogger(__name__)

_TTL_S: Final = 1.0
_REPLICAS_LIMIT_S: Final = 2.0
_RUNNING: Final = "RUNNING"
_STARTING: Final = ("STARTING", "UPDATING", "RECOVERING")

Replicas: TypeAlias = Mapping[str, ReplicaCounts]
"""Counts by deployment."""
CountReplicas: TypeAlias = Callable[[], Awaitable[Replicas]]


async def unknown_replicas() -> Replicas:
    return {}


class ModelState(StrEnum):
    """States, ordered by the time until a result."""

    READY = "ready"
    STARTING = "starting"
    SCALED_TO_ZERO = "scaled to zero"
    NO_REPLICA = "no replica"


_ORDER: Final = tuple(ModelState)


@dataclass(frozen=True, slots=True)
class ModelStatus:
    state: ModelState | None
    """State; None if the replicas are unknown."""
    predicted_wait_s: float | None
    """Seconds until a new task starts; None before the model's first finished task."""


class ModelStatusReader:
    def __init__(self, tasks: TaskStore, windows: WindowReader, queues: Iterable[str], replicas: CountReplicas) -> None:
        self._tasks = tasks
        self._windows = windows
        self._queues = tuple(queues)
        self._replicas = replicas
        self._counts = SingleFlightCache(self._count_replicas, _TTL_S)
        self._statuses = SingleFlightCache(self._read, _TTL_S)

    async def worst_status(self, queues: Iterable[str]) -> ModelStatus:
        """Returns the worst state and the longest wait of these queues."""
        status_by_queue = await self._statuses.get()
        statuses = [status_by_queue[queue] for queue in queues]
        states = [status.state for status in statuses if status.state is not None]
        waits = [status.predicted_wait_s for status in statuses if status.predicted_wait_s is not None]
        return ModelStatus(max(states, key=_ORDER.index, default=None), max(waits, default=None))

    async def state(self, queue: str) -> tuple[ModelState | None, str | None]:
        """Returns the state, and a message for clients about the fault that prevents a start."""
        counts = (await self._counts.get()).get(queue)
        return _state(counts), counts.fault.for_clients if counts and counts.fault else None

    async def _read(self) -> Mapping[str, ModelStatus]:
        replicas = await self._counts.get()
        loads = await asyncio.gather(*(get_queue_load(self._tasks, self._windows, queue) for queue in self._queues))
        return {
            queue: ModelStatus(_state(replicas.get(queue)), load.wait_s)
            for queue, load in zip(self._queues, loads, strict=True)
        }

    async def _count_replicas(self) -> Replicas:
        try:
            async with asyncio.timeout(_REPLICAS_LIMIT_S):
                return await self._replicas()
        except Exception as problem:
            # Tasks run without Serve's controller, too.
            logger.warning("the replicas are unknown: %s", type(problem).__name__)
            return {}


def _state(replicas: ReplicaCounts | None) -> ModelState | None:
    if replicas is None:
        return None
    if replicas.states.get(_RUNNING):
        return ModelState.READY
    if any(replicas.states.get(state) for state in _STARTING):
        return ModelState.STARTING
    return ModelState.NO_REPLICA if replicas.target else ModelState.SCALED_TO_ZERO


class EtaReader:
    """Reads the queue position and the eta of unfinished tasks."""

    def __init__(self, tasks: TaskStore, windows: WindowReader, models: ModelStatusReader) -> None:
        self._tasks = tasks
        self._models = models
        self._windows = windows
        self._forecasts: dict[str, SingleFlightCache[QueueForecast]] = {}

    async def details(self, task: Task) -> dict[str, Any] | None:
        """Returns the `details` of an unfinished task. Raises RedisError."""
        queue = task.queue
        if queue not in self._forecasts:
            read = partial(read_forecast, self._tasks, self._windows, queue)
            self._forecasts[queue] = SingleFlightCache(read, _TTL_S)
        forecast, position = await asyncio.gather(self._forecasts[queue].get(), find_position(self._tasks, task))
        # Spares the call of Serve's controller if a step of the last minute proves that a replica runs.
        state, fault = None, None
        if task.status is Status.PENDING and forecast.step_s is None:
            state, fault = await self._models.state(queue)
        starting = state not in (None, ModelState.READY)
        return eta_details(task, position, forecast, await self._tasks.reads.now(), starting=starting, fault=fault)
