"""Admin route of the fleet: queue, durations and replicas of each model, and the effect of more replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import sqrt
from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel, Field

from deployments.contract.counts import LOAD_S, LOADS, ReplicaCounts
from serve_app.api.auth import Operator
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps, Services
from serve_app.tasks.queue_load import get_queue_load
from serve_app.tasks.task import Task
from serve_app.tasks.windows import WINDOWS, Window

router = APIRouter(prefix="/fleet")

_RUNNING: Final = "RUNNING"


class WindowStats(BaseModel):
    """Statistics of a recent period. Times are in seconds, percentiles to within five percent."""

    wait_p50: float | None = Field(description="From submission to the first start; null without any")
    wait_p95: float | None
    run_p50: float | None = Field(description="From the first start to the result; null without any")
    run_p95: float | None
    accepted: int
    ready: int
    failed: int = Field(description="Excluding cancelled and moderated tasks")
    cancelled: int
    moderated: int
    per_minute: float = Field(description="Tasks that became ready, per minute")
    error_rate: float | None = Field(description="failed / (ready + failed), 0 to 1; null without any")
    busy: float | None = Field(
        description="Device time of tasks divided by the time of the replicas that run now, 0 to 1; null if unknown or "
        "none runs"
    )


class Minute(BaseModel):
    ready: int
    wait_p95: float | None = Field(description="Seconds; null if no task started")


class WhatIf(BaseModel):
    """Forecast for a number of replicas, at the arrivals of the last five minutes (or hour, if no task ended)."""

    replicas: int
    busy: float = Field(description="Share of the replicas' time that the arriving tasks need; overload from 1 on")
    wait_s: float | None = Field(
        description="Mean wait in the queue at steady arrivals (M/M/c, Sakasegawa's approximation); null in overload"
    )
    drain_s: float | None = Field(description="Seconds until the tasks that wait now are done; null in overload")


class RecentFailure(BaseModel):
    task: str
    endpoint: str
    at: float = Field(description="Epoch seconds")
    error: str


class ModelQueue(BaseModel):
    model: str = Field(description="A model of the catalog")
    queued: int
    quarantined: int = Field(description="Tasks that wait to run alone after several crashes")
    running: int
    queued_s: float | None = Field(
        description="Estimated run time of all waiting tasks one after another, by the mean of the last hour"
    )
    predicted_wait_s: float | None = Field(description="Estimated wait of a new task at the current concurrency")
    windows: dict[str, WindowStats] = Field(description="Statistics of the last 5m, 1h and 24h")
    history: list[Minute] = Field(description="Minutes of the last hour, oldest first, including the current one")
    batch: int | None = Field(description="Batch size of the last step; null without one within a minute")
    step_s: float | None = Field(description="Duration of the last step, seconds")
    replicas: dict[str, int] | None = Field(description="Replicas by state; null if unknown")
    target_replicas: int | None = Field(description="Number of replicas that Serve aims at; null if unknown")
    fault: str | None = Field(description="Reason why the last replica failed to start")
    min_replicas: int | None = Field(description="Lower bound of autoscaling; null if fixed or unknown")
    max_replicas: int | None
    cold_start_s: float | None = Field(description="Mean time to load a replica; null before the first")
    what_if: list[WhatIf] = Field(
        description="Forecasts for one replica fewer, the current number, and one more; empty if unknown"
    )
    failures: list[RecentFailure] = Field(description="The last ten failed tasks, newest first")


class Fleet(BaseModel):
    models: list[ModelQueue]
    store_bytes: int
    store_limit_bytes: int = Field(description="0 for no limit")
    grafana_url: str | None = Field(description="metrics.grafana_url")


@router.get("", responses=errors(403, 503))
async def get_fleet(services: Deps, caller: Operator) -> Fleet:
    memory = await services.tasks.store.reads.memory()
    replicas = await services.replicas()
    models = [_model(services, name, replicas.get(name)) for name in services.catalog.models]
    return Fleet(
        models=await asyncio.gather(*models),
        store_bytes=memory.used,
        store_limit_bytes=memory.limit,
        grafana_url=services.settings.metrics.grafana_url,
    )


async def _model(services: Services, name: str, replicas: ReplicaCounts | None) -> ModelQueue:
    tasks = services.tasks.store
    load = await get_queue_load(tasks, services.tasks.windows, name)
    windows = {window: await services.tasks.windows.read(name, window) for window in WINDOWS}
    minutes = [Window(60, counts) for counts in await services.tasks.windows.periods(name, "1h")]
    last_step, work = await tasks.reads.last_step(name), await tasks.reads.work(name)
    running = None if replicas is None else replicas.states.get(_RUNNING, 0)
    min_replicas, max_replicas = (replicas and replicas.bounds) or (None, None)
    return ModelQueue(
        model=name,
        queued=load.queued,
        quarantined=load.quarantined,
        running=load.running,
        queued_s=load.queued_s,
        predicted_wait_s=load.wait_s,
        windows={window: _window_stats(recent, running) for window, recent in windows.items()},
        history=[Minute(ready=minute.ready, wait_p95=minute.quantile("wait", 0.95)) for minute in minutes],
        batch=last_step[0] if last_step else None,
        step_s=last_step[1] if last_step else None,
        replicas=None if replicas is None else dict(replicas.states),
        target_replicas=None if replicas is None else replicas.target,
        fault=replicas.fault.reason if replicas and replicas.fault else None,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        cold_start_s=work[LOAD_S] / work[LOADS] if work.get(LOADS) else None,
        what_if=[] if running is None else _what_if(windows, running, load.queued + load.quarantined),
        failures=[_failure(task) for task in await tasks.reads.failures(name)],
    )


def _window_stats(window: Window, running: int | None) -> WindowStats:
    ended = window.ready + window.errors
    return WindowStats(
        wait_p50=window.quantile("wait", 0.5),
        wait_p95=window.quantile("wait", 0.95),
        run_p50=window.quantile("run", 0.5),
        run_p95=window.quantile("run", 0.95),
        accepted=window.accepted,
        ready=window.ready,
        failed=window.errors,
        cancelled=window.cancelled,
        moderated=window.moderated,
        per_minute=60 * window.ready / window.seconds,
        error_rate=window.errors / ended if ended else None,
        busy=min(1.0, window.device_s / (window.seconds * running)) if running else None,
    )


def _what_if(windows: Mapping[str, Window], running: int, waiting: int) -> list[WhatIf]:
    for window in (windows["5m"], windows["1h"]):
        if (device_s := window.task_device_s) is not None:
            arriving = window.accepted / window.seconds
            counts = range(max(1, running - 1), running + 2)
            return [predict_capacity(count, arriving, device_s, waiting) for count in counts]
    return []


def predict_capacity(replicas: int, arriving: float, device_s: float, waiting: int) -> WhatIf:
    """Forecasts at `arriving` tasks per second of `device_s` each, with `waiting` tasks now. Needs a replica."""
    busy = arriving * device_s / replicas
    drain_s = waiting * device_s / replicas / (1 - busy) if busy < 1 else None
    wait_s = mean_wait_s(replicas, busy, device_s)
    return WhatIf(replicas=replicas, busy=busy, wait_s=wait_s, drain_s=drain_s)


def mean_wait_s(replicas: int, busy: float, service_s: float) -> float | None:
    """Returns the mean wait in the queue of an M/M/c system, by Sakasegawa's approximation; None if `busy` >= 1.

        Wq = S / c * rho ** (sqrt(2 * (c + 1)) - 1) / (1 - rho)

    c: `replicas`, rho: `busy`, S: `service_s`. It is exact for one replica: rho / (1 - rho) * S. It assumes random
    arrivals and service times (Poisson, exponential), and one task at a time in each replica. Regular arrivals wait
    less. H. Sakasegawa, "An approximation formula Lq = a rho^b / (1 - rho)", Annals of the Institute of Statistical
    Mathematics 29 (1977), 67-75.
    """
    if busy >= 1:
        return None
    return service_s / replicas * busy ** (sqrt(2 * (replicas + 1)) - 1) / (1 - busy)


def _failure(task: Task) -> RecentFailure:
    error = str((task.details or {}).get("error", "unknown reason"))
    return RecentFailure(task=task.id, endpoint=task.endpoint, at=task.finished or task.created, error=error)
