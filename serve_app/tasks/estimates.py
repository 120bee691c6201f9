"""Forecasts of when a task ends, from its queue position, the work before it and the recent throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from deployments.contract.counts import LOAD_S, LOADS
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.windows import BUCKET_ERROR, WINDOWS, Window, WindowReader

_MIN_PROGRESS: Final = 0.1
"""Progress from which the remaining time is derived from it."""
_WRITE_S: Final = 0.2
"""Seconds between two writes of progress, which is also as old as the last step."""
_OVERRUN: Final = 0.25
"""Minimum remaining time of a task that takes longer than expected, as a share of the elapsed time."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a unit of `ResolvedRequest.work` runs. One task in ten is below `fast`, one above `slow`."""

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
    """Mean compute units of an unfinished task."""
    load_s: float | None = None
    """Mean seconds to load the model; None before the first report."""
    step_s: float | None = None
    """Seconds of the last step; None if no replica reported one within a minute."""


class QueuePosition(NamedTuple):
    """Position of an unfinished task; a quarantined one is neither queued nor leased."""

    number: int | None = None
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


async def find_position(tasks: TaskStore, task: Task) -> QueuePosition:
    """Finds a task that has not ended. Raises RedisError."""
    if task.status is not Status.PENDING:
        return QueuePosition(leased=True)
    rank = await tasks.redis.zrank(f"{tasks.prefix}queued:{task.queue}", task.id)
    if rank is not None:
        return QueuePosition(cast(int, rank) + 1)
    lease = await tasks.redis.zscore(f"{tasks.prefix}leased:{task.queue}", task.id)
    return QueuePosition(leased=lease is not None)


def eta_details(
    task: Task,
    position: QueuePosition,
    forecast: QueueForecast,
    now: float,
    *,
    starting: bool = False,
    fault: str | None = None,
) -> dict[str, Any] | None:
    """Returns the `details` of a task that has not ended; None if nothing is known.

    `eta` and `eta_range`, an interval that holds it four times in five, are in seconds from `now` (epoch seconds). A
    waiting task has a `queue_position`. A `message` says that the model is `starting`, or the `fault` that prevents it.
    """
    details: dict[str, Any] = {}
    load_s, pace = forecast.load_s if starting else 0.0, forecast.pace
    if pace and load_s is not None and (position.leased or position.number):
        eta, lower, upper = (
            load_s + wait_s + run_s
            for wait_s, run_s in zip(
                _wait(position.number, pace, forecast), _run(task, pace, forecast, now), strict=True
            )
        )
        details = {
            "eta": round(eta, 1),
            "eta_range": [math.floor(round(10 * lower, 6)) / 10, math.ceil(round(10 * upper, 6)) / 10],
        }
    if position.number:
        details["queue_position"] = position.number
    if fault is not None:
        details["message"] = fault
    elif starting:
        details["message"] = "starting model" if load_s is None else f"starting model, about {load_s:.0f} s"
    return details or None


def _wait(position: int | None, pace: Pace, forecast: QueueForecast) -> tuple[float, float, float]:
    """Returns the seconds until the task's lease: the mean and the ends of the interval.

    By Little's law, as many tasks as run now proceed at a time, each at the mean pace. The first of them ends after
    half a run on average. Differences between tasks even out over those ahead.
    """
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
    """Returns the remaining seconds of the task's own work: the mean and the ends of the interval."""
    # Only the start of the first attempt is known.
    if task.started is None or task.status is Status.PENDING or task.attempt > 1:
        return task.work * pace.mean, task.work * pace.fast, task.work * pace.slow
    elapsed, expected = max(0.0, now - task.started), task.work * pace.mean
    progress = task.progress or 0.0
    if progress >= _MIN_PROGRESS:
        # Mean of two forecasts, weighted by progress: elapsed * (1 - progress) / progress by progress, and by pace
        # max(0, expected - elapsed).
        left, lag = (1 - progress) * max(expected, elapsed), _WRITE_S + (forecast.step_s or 0.0)
        lower, upper = max(0.0, left * pace.fast / pace.mean - lag), left * pace.slow / pace.mean
        left = max(0.0, left - lag / 2)
    else:
        left, lower, upper = (max(0.0, task.work * each - elapsed) for each in (pace.mean, pace.fast, pace.slow))
    return left, lower, max(upper, _OVERRUN * elapsed) if elapsed > expected else upper
