"""Autoscaling policy on seconds of work: the number of replicas a model needs, from its queue in the task store.

Ray's own policy sees only calls in flight, which the present replicas limit: from one replica to a hundred it takes
seven model loads, one after the other. This policy counts the waiting tasks as well, in seconds of a replica's time.

It runs in Serve's controller and must not block it, so a thread reads the store and the policy uses the last reading.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from deployments.contract.counts import BUSY_S, LOAD_S, LOADS
from serve_app.config.replicas import find_redis_url
from serve_app.storage import connection

logger = logging.getLogger(__name__)

_READ_PERIOD_S: Final = 0.5
_RETRY_S: Final = 2.0
_STALE_S: Final = 10.0
"""Age of a reading after which the number of replicas stays as it is."""
_COLD_S: Final = 5.0
"""Seconds for which dispatchers hold tasks back after a reading without replicas."""
_WINDOW_S: Final = 60.0
"""Time constant of the average arrivals."""
_FAST_WINDOW_S: Final = 10.0
"""Time constant of the recent arrivals, which detect a rise."""
_SIGNIFICANT: Final = 3.0
"""Standard deviations of independent arrivals beyond which recent arrivals count as a rise."""
_FORGET_S: Final = 1800.0
"""Time in which the remembered lowest cost of work grows e-fold."""
_IDLE_TASKS: Final = 0.5
"""Expected tasks in _WINDOW_S below which an empty queue needs no replica."""
_UTILISATION: Final = 0.8
"""Target utilisation of a replica under steady arrivals. Near 1, waits grow without bound."""
_SPEEDS: Final = (0.25, 8.0)
"""Bounds of a replica's speed in device seconds a second. Threads of an engine may overlap on a device, or idle."""


@dataclass(frozen=True, slots=True)
class Load:
    """A reading of a queue. Work is in units of `ResolvedRequest.work`."""

    tasks: int = 0
    """Waiting and running tasks."""
    unfinished: float = 0.0
    """Work of these tasks."""
    accepted: float = 0.0
    """Work of all tasks ever accepted."""
    accepted_tasks: int = 0
    unit_s: float | None = None
    """Device seconds per unit of work of recent tasks; None before the first one ended."""
    device_s: float = 0.0
    """Total device seconds of all replicas."""
    busy_s: float = 0.0
    """Total seconds in which replicas had a task."""
    load_s: float = 0.0
    """Seconds from the start of a replica until it works; 0 if unknown."""


@dataclass
class Forecast:
    """Averages over readings, and the number of replicas that follows from them."""

    load: Load = field(default_factory=Load)
    arriving: float = 0.0
    """Average work that arrives in a second."""
    arriving_tasks: float = 0.0
    """Average tasks that arrive in a second."""
    recent_tasks: float = 0.0
    """Tasks that arrive in a second, averaged over _FAST_WINDOW_S."""
    full_unit_s: float | None = None
    """Device seconds per unit of work in full batches: the lowest of late. Idle replicas run small batches, which cost
    more."""
    speed: float = 1.0
    """Device seconds that a replica does in a second."""
    updated_at: float | None = None

    def update(self, load: Load, now: float) -> None:
        """`now` is in seconds of any one clock."""
        before, self.load = self.load, load
        if self.updated_at is not None and now > self.updated_at:
            seconds = now - self.updated_at
            weight = 1 - math.exp(-seconds / _WINDOW_S)
            self.arriving += weight * (max(0.0, load.accepted - before.accepted) / seconds - self.arriving)
            tasks = max(0, load.accepted_tasks - before.accepted_tasks)
            self.arriving_tasks += weight * (tasks / seconds - self.arriving_tasks)
            self.recent_tasks += (1 - math.exp(-seconds / _FAST_WINDOW_S)) * (tasks / seconds - self.recent_tasks)
            if load.unit_s is not None:
                remembered = math.inf if self.full_unit_s is None else self.full_unit_s
                self.full_unit_s = min(load.unit_s, remembered * math.exp(seconds / _FORGET_S))
            if (busy_s := load.busy_s - before.busy_s) > 0:
                speed = min(max((load.device_s - before.device_s) / busy_s, _SPEEDS[0]), _SPEEDS[1])
                self.speed += (1 - math.exp(-busy_s / _WINDOW_S)) * (speed - self.speed)
        self.updated_at = now

    def replicas(self, target_wait_s: float, target_ongoing: float) -> float:
        """Returns the replicas for steady arrivals, or more, so that the backlog ends within `target_wait_s`.

            steady  = arriving * rise * full_unit_s / (speed * 0.8)
            backlog = unfinished * unit_s / (speed * max(target_wait_s, load_s))

        A replica that takes longer to load than `target_wait_s` would come too late to help. The result is at most the
        number of tasks that are present or expected within a minute, because a task runs on one replica. It is exactly
        0 for an idle queue: an average never reaches 0, and Ray rounds up.
        """
        load = self.load
        expected = self.arriving_tasks * _WINDOW_S
        if load.tasks == 0 and expected < _IDLE_TASKS:
            return 0.0
        if load.unit_s is None or self.full_unit_s is None:
            return load.tasks / target_ongoing
        steady = self.arriving * self._rise() * self.full_unit_s / (self.speed * _UTILISATION)
        backlog = load.unfinished * load.unit_s / (self.speed * max(target_wait_s, load.load_s))
        return min(max(steady, backlog), max(load.tasks, expected))

    def _rise(self) -> float:
        """Returns recent arrivals in relation to average ones; 1 unless they are significantly more."""
        # Standard deviation of an exponentially weighted average.
        deviation = math.sqrt(self.recent_tasks / (2 * _FAST_WINDOW_S))
        if self.recent_tasks - _SIGNIFICANT * deviation <= self.arriving_tasks:
            return 1.0
        return self.recent_tasks / self.arriving_tasks


class WorkPolicy:
    """Policy of one model. Serve's controller creates it and calls it several times a second."""

    def __init__(self, queue: str, target_wait_s: float, prefix: str, data_dir: str, file: str | None) -> None:
        """`prefix` is that of keys in the task store. The store's URL is a secret, which Serve would show, so it is
        read from the environment, the settings `file` or `data_dir`."""
        self._prefix, self._data_dir, self._file = prefix, Path(data_dir), Path(file) if file else None
        self._queue, self._target_wait_s = queue, target_wait_s
        self._forecast = Forecast()
        self._read_at: float | None = None
        self._called_at, self._replicas = 0.0, -1
        self._thread: threading.Thread | None = None

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        if self._thread is None:
            self._thread = threading.Thread(target=asyncio.run, args=(_poll(weakref.ref(self)),), daemon=True)
            self._thread.start()
        self._called_at, self._replicas = time.monotonic(), context.current_num_replicas
        if self._read_at is None or time.monotonic() - self._read_at > _STALE_S:
            return context.target_num_replicas, {}
        return self._forecast.replicas(self._target_wait_s, context.config.target_ongoing_requests), {}

    async def read(self, store: Redis) -> None:
        """Reads the queue, and marks it for dispatchers while it has no replica. Raises RedisError."""
        pipe, prefix = store.pipeline(transaction=False), self._prefix
        for index in ("queued", "quarantined", "leased"):
            pipe.zcard(f"{prefix}{index}:{self._queue}")
        for name in ("demand", "stats", "work", "device"):
            pipe.hgetall(f"{prefix}{name}:{self._queue}")
        cold = f"{prefix}cold:{self._queue}"
        if self._replicas == 0 and time.monotonic() - self._called_at < _COLD_S:
            pipe.set(cold, 1, px=round(1000 * _COLD_S))
        else:
            pipe.delete(cold)
        *tasks, work, stats, counts, device, _ = await pipe.execute()
        done, device_us = float(work.get("done", 0)), float(work.get("device_us", 0))
        load = Load(
            tasks=sum(tasks),
            unfinished=float(work.get("unfinished", 0)),
            accepted=float(work.get("accepted", 0)),
            accepted_tasks=int(stats.get("accepted", 0)),
            unit_s=device_us / 1e6 / done if done else None,
            device_s=sum(map(int, device.values())) / 1e6,
            busy_s=float(counts.get(BUSY_S, 0)),
            load_s=float(counts.get(LOAD_S, 0)) / float(counts.get(LOADS, 1)),
        )
        self._read_at = time.monotonic()
        self._forecast.update(load, self._read_at)

    def connect(self) -> Redis:
        """Connects to the task store. Raises MissingSecret."""
        return connection.connect(find_redis_url(self._file, self._data_dir))


async def _poll(policy: weakref.ref[WorkPolicy]) -> None:
    """Reads the queue until the policy is garbage-collected."""
    store: Redis | None = None
    while (owner := policy()) is not None:
        pause_s = _READ_PERIOD_S
        try:
            store = store or owner.connect()
            await owner.read(store)
        except Exception as problem:  # the number of replicas stays until the store can be read again
            logger.warning("the autoscaling policy can't read the task store: %s", type(problem).__name__)
            pause_s = _RETRY_S
        del owner
        await asyncio.sleep(pause_s)
