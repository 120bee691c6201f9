"""The autoscaling policy on seconds of work: how many replicas a model needs, by its queue in the task store.

Ray's own policy sees only calls in flight, and those are bounded by the replicas there are: from one to a hundred it
takes seven model loads one after the other. This one counts what waits in the queue, in seconds of a replica's time.
It runs in Serve's controller, which it never holds up: a thread reads the store, the policy answers from its last
reading.
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

_READ_EVERY_S: Final = 0.5
_AGAIN_S: Final = 2.0
_STALE_S: Final = 10.0
"""An older reading changes nothing: the replicas stay as many."""
_COLD_S: Final = 5.0
"""How long dispatchers hold tasks back after the last look that saw no replica."""
_WINDOW_S: Final = 60.0
"""Over which arrivals are averaged, ..."""
_FAST_WINDOW_S: Final = 10.0
"""... and over which they count where they have become more, ..."""
_SURE: Final = 3.0
"""... by so many standard deviations of independent arrivals."""
_FORGET_S: Final = 1800.0
"""In which the least cost of work that was seen grows e-fold, until a present one is less."""
_NO_TASK: Final = 0.5
"""Fewer are expected in such a window than keep a replica."""
_UTILISATION: Final = 0.8
"""Of a replica that serves steady arrivals: with more, waits grow without bound."""
_SPEEDS: Final = (0.25, 8.0)
"""Of a replica, in device seconds a second: threads of an engine may use a device together, or leave it idle."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A reading of a queue."""

    tasks: int = 0
    """Waiting and running."""
    unfinished: float = 0.0
    """Work in them, in units of `ResolvedRequest.work`."""
    accepted: float = 0.0
    """Work that ever came."""
    accepted_tasks: int = 0
    unit_s: float | None = None
    """Device seconds for a unit of work, by tasks that ended of late; None before any has."""
    device_s: float = 0.0
    """Of all replicas together, ever."""
    busy_s: float = 0.0
    """The same of time with any task at all."""
    load_s: float = 0.0
    """From the start of a replica until it works, as far as it is known."""


@dataclass
class Forecast:
    """What follows from readings over time."""

    demand: Demand = field(default_factory=Demand)
    arriving: float = 0.0
    """Work a second."""
    arriving_tasks: float = 0.0
    """A second."""
    fast_tasks: float = 0.0
    """The same over a shorter time."""
    full_unit_s: float | None = None
    """Device seconds for a unit of work in full batches: the least of late. With idle replicas batches are small, and
    work takes more."""
    speed: float = 1.0
    """Device seconds that a replica does in a second."""
    at: float | None = None

    def update(self, demand: Demand, now: float) -> None:
        """`now` in seconds of any one clock."""
        before, self.demand = self.demand, demand
        if self.at is not None and now > self.at:
            seconds = now - self.at
            weight = 1 - math.exp(-seconds / _WINDOW_S)
            self.arriving += weight * (max(0.0, demand.accepted - before.accepted) / seconds - self.arriving)
            tasks = max(0, demand.accepted_tasks - before.accepted_tasks)
            self.arriving_tasks += weight * (tasks / seconds - self.arriving_tasks)
            self.fast_tasks += (1 - math.exp(-seconds / _FAST_WINDOW_S)) * (tasks / seconds - self.fast_tasks)
            if demand.unit_s is not None:
                remembered = math.inf if self.full_unit_s is None else self.full_unit_s
                self.full_unit_s = min(demand.unit_s, remembered * math.exp(seconds / _FORGET_S))
            if (busy_s := demand.busy_s - before.busy_s) > 0:
                speed = min(max((demand.device_s - before.device_s) / busy_s, _SPEEDS[0]), _SPEEDS[1])
                self.speed += (1 - math.exp(-busy_s / _WINDOW_S)) * (speed - self.speed)
        self.at = now

    def replicas(self, target_wait_s: float, target_ongoing: float) -> float:
        """How many are needed: for what arrives at a steady pace, and so that what is there ends within
        `target_wait_s`, or the time that a replica takes to load if that is longer: one that comes when work is done
        helps nobody. No more than tasks: one video holds one replica. None once nothing is there and hardly anything
        comes: an average over time never ends at 0, and Ray rounds up."""
        demand = self.demand
        expected = self.arriving_tasks * _WINDOW_S
        if demand.tasks == 0 and expected < _NO_TASK:
            return 0.0
        if demand.unit_s is None or self.full_unit_s is None:
            return demand.tasks / target_ongoing
        steady = self.arriving * self._rise() * self.full_unit_s / (self.speed * _UTILISATION)
        backlog = demand.unfinished * demand.unit_s / (self.speed * max(target_wait_s, demand.load_s))
        return min(max(steady, backlog), max(demand.tasks, expected))

    def _rise(self) -> float:
        """How many times more arrives of late than on average: 1 unless it is no chance."""
        deviation = math.sqrt(self.fast_tasks / (2 * _FAST_WINDOW_S))  # of an exponentially weighted average
        if self.fast_tasks - _SURE * deviation <= self.arriving_tasks:
            return 1.0
        return self.fast_tasks / self.arriving_tasks


class WorkPolicy:
    """Ray makes one for each model, in the controller, and asks it several times a second."""

    def __init__(self, queue: str, target_wait_s: float, prefix: str, data_dir: str, file: str | None) -> None:
        """`prefix` is that of keys in the task store. Its address is a secret, which Serve would show: it is looked for
        in this process's environment, the settings `file`, and `data_dir`."""
        self._prefix, self._data_dir, self._file = prefix, Path(data_dir), Path(file) if file else None
        self._queue, self._target_wait_s = queue, target_wait_s
        self._forecast = Forecast()
        self._read_at: float | None = None
        self._called_at, self._replicas = 0.0, -1
        self._thread: threading.Thread | None = None

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        if self._thread is None:
            self._thread = threading.Thread(target=asyncio.run, args=(_read(weakref.ref(self)),), daemon=True)
            self._thread.start()
        self._called_at, self._replicas = time.monotonic(), context.current_num_replicas
        if self._read_at is None or time.monotonic() - self._read_at > _STALE_S:
            return context.target_num_replicas, {}
        return self._forecast.replicas(self._target_wait_s, context.config.target_ongoing_requests), {}

    async def look(self, store: Redis) -> None:
        """Reads the queue, and notes for dispatchers whether it has no replica. Raises RedisError."""
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
        demand = Demand(
            sum(tasks),
            float(work.get("unfinished", 0)),
            float(work.get("accepted", 0)),
            int(stats.get("accepted", 0)),
            device_us / 1e6 / done if done else None,
            sum(map(int, device.values())) / 1e6,
            float(counts.get(BUSY_S, 0)),
            float(counts.get(LOAD_S, 0)) / float(counts.get(LOADS, 1)),
        )
        self._read_at = time.monotonic()
        self._forecast.update(demand, self._read_at)

    def connect(self) -> Redis:
        """To the task store. Raises MissingSecret."""
        return connection.connect(find_redis_url(self._file, self._data_dir))


async def _read(policy: weakref.ref[WorkPolicy]) -> None:
    """Reads until nobody asks the policy any more. It keeps none alive."""
    store: Redis | None = None
    while (owner := policy()) is not None:
        pause_s = _READ_EVERY_S
        try:
            store = store or owner.connect()
            await owner.look(store)
        except Exception as problem:  # whatever it is, replicas stay as many until it is over
            logger.warning("the autoscaling policy can't read the task store: %s", type(problem).__name__)
            pause_s = _AGAIN_S
        del owner
        await asyncio.sleep(pause_s)
