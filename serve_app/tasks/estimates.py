"""Forecasts of when a task ends, from its queue position, the work before it and the recent throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from deployments.contract.counts import LOAD_S, LOADS
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.windows import BUCKET_ERROR, WINDOWS, Window, WindowReader

_LEAST_PROGRESS: Final = 0.1
"""Progress from which the remaining time is derived from it."""
_WRITE_S: Final = 0.2
"""Seconds between two writes of progress, which is also as old as the last step."""
_OVERRUN: Final = 0.25
"""Share of the elapsed time that a task may still take at least, once it takes longer than expected."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a unit of `Plan.work` runs. One task in ten is faster than `fast`, one in ten slower than `slow`."""

    mean: float
    fast: float
    slow: float

    @classmethod
    def from_window(cls, window: Window) -> Pace | None:
        """Returns None if no task became ready."""
        if window.pace is None:
            return None
        mean = max(window.pace, 1e-6)
        fast, slow = (window.quantile("pace", fraction) or mean for fraction in (0.1, 0.9))
        return cls(mean, min(fast / BUCKET_ERROR, mean), max(slow * BUCKET_ERROR, mean))


@dataclass(frozen=True, slots=True)
class QueueForecast:
    """Facts about a queue that forecasts of its tasks use."""

    pace: Pace | None = None
    """Pace in the shortest window in which a task became ready; None if none did within a day."""
    running: int = 0
    mean_work: float = 0.0
    """Compute units of an unfinished task, the mean."""
    load_s: float | None = None
    """Seconds to load the model, the mean; None before the first report."""
    step_s: float | None = None
    """Seconds of the last step; None if no replica reported one within a minute."""


class Place(NamedTuple):
    """Place of an unfinished task; a quarantined one is neither queued nor leased."""

    position: int | None = None
    """Position in the queue; 1 is next."""
    leased: bool = False


async def read_forecast(tasks: TaskStore, windows: WindowReader, queue: str) -> QueueForecast:
    """Raises RedisError."""
    prefix = tasks.prefix
    pipe = tasks.redis.pipeline(transaction=False)
    pipe.hget(f"{prefix}demand:{queue}", "unfinished")
    pipe.zcard(f"{prefix}deadlines:{queue}")
    pipe.zcard(f"{prefix}leased:{queue}")
    pipe.hmget(f"{prefix}work:{queue}", LOAD_S, LOADS)
    pipe.hget(f"{prefix}pace:{queue}", "step_s")
    unfinished, count, running, (load_s, loads), step_s = await pipe.execute()
    pace = None
    for window in WINDOWS:
        if pace := Pace.from_window(await windows.read(queue, window)):
            break
    return QueueForecast(
        pace,
        running,
        float(unfinished or 0) / max(count, 1),
        float(load_s or 0) / float(loads) if loads else None,
        None if step_s is None else float(step_s),
    )


async def find_place(tasks: TaskStore, task: Task) -> Place:
    """Finds a task that has not ended. Raises RedisError."""
    if task.status is not Status.PENDING:
        return Place(leased=True)
    rank = await tasks.redis.zrank(f"{tasks.prefix}queued:{task.queue}", task.id)
    if rank is not None:
        return Place(cast(int, rank) + 1)
    lease = await tasks.redis.zscore(f"{tasks.prefix}leased:{task.queue}", task.id)
    return Place(leased=lease is not None)


def estimate(
    task: Task, place: Place, forecast: QueueForecast, now: float, *, starting: bool = False, fault: str | None = None
) -> dict[str, Any] | None:
    """`details` of a task that has not ended: `eta` and `eta_range`, an interval that holds it four times in five, in
    seconds from `now` (epoch seconds); `queue_position` while it waits; a `message` while its model is `starting`, as
    no replica runs, or with the `fault` that keeps it from starting. None where nothing is known."""
    details: dict[str, Any] = {}
    load_s, pace = forecast.load_s if starting else 0.0, forecast.pace
    if pace and load_s is not None and (place.leased or place.position):
        eta, least, most = (
            load_s + wait_s + run_s
            for wait_s, run_s in zip(
                _wait(place.position, pace, forecast), _run(task, pace, forecast, now), strict=True
            )
        )
        details = {
            "eta": round(eta, 1),
            "eta_range": [math.floor(round(10 * least, 6)) / 10, math.ceil(round(10 * most, 6)) / 10],
        }
    if place.position:
        details["queue_position"] = place.position
    if fault is not None:
        details["message"] = fault
    elif starting:
        details["message"] = "starting model" if load_s is None else f"starting model, about {load_s:.0f} s"
    return details or None


def _wait(position: int | None, pace: Pace, forecast: QueueForecast) -> tuple[float, float, float]:
    """Seconds until its turn, the mean and the ends of the interval. By Little's law: as many as run now get on at a
    time, each at the mean pace. Of those that run the first to end is on average half a run from there. What differs
    from task to task evens out over those ahead."""
    if position is None:
        return 0.0, 0.0, 0.0
    ahead = position - 1
    work = (ahead + (0.5 if forecast.running else 0.0)) * forecast.mean_work / max(forecast.running, 1)
    narrowing = 1 / math.sqrt(max(ahead, 1))
    return (
        work * pace.mean,
        work * (pace.mean + (pace.fast - pace.mean) * narrowing),
        work * (pace.mean + (pace.slow - pace.mean) * narrowing),
    )


def _run(task: Task, pace: Pace, forecast: QueueForecast, now: float) -> tuple[float, float, float]:
    """Seconds of its own work that are left, as of `_wait`."""
    # Since when an attempt runs is known of the first one only.
    if task.started is None or task.status is Status.PENDING or task.attempt > 1:
        return task.work * pace.mean, task.work * pace.fast, task.work * pace.slow
    elapsed, expected = max(0.0, now - task.started), task.work * pace.mean
    progress = task.progress or 0.0
    if progress >= _LEAST_PROGRESS:
        # What progress says, elapsed * (1 - progress) / progress, and what the pace says, the rest of `expected`: the
        # further the work is, the more counts the former.
        left, lag = (1 - progress) * max(expected, elapsed), _WRITE_S + (forecast.step_s or 0.0)
        least, most = max(0.0, left * pace.fast / pace.mean - lag), left * pace.slow / pace.mean
        left = max(0.0, left - lag / 2)
    else:
        left, least, most = (max(0.0, task.work * each - elapsed) for each in (pace.mean, pace.fast, pace.slow))
    return left, least, max(most, _OVERRUN * elapsed) if elapsed > expected else most
