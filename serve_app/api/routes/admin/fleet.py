"""Admin route of the fleet: per model, what is queued and running, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import BaseModel, Field

from deployments.contract.counts import Histogram
from serve_app.api.auth import Operator
from serve_app.api.routes.schemas import errors
from serve_app.api.services import Deps, Services
from serve_app.tasks.task import Task
from serve_app.tasks.views import WAIT, WORK, load_of

router = APIRouter(prefix="/fleet")


class Percentiles(BaseModel):
    """Of all tasks since the store began; percentiles are upper bounds of the buckets they lie in."""

    tasks: int
    mean: float | None
    half: float | None = Field(
        description="Of one task in two, at most; null where there is none, or it is over an hour"
    )
    most: float | None = Field(description="Of nineteen in twenty, at most")


class RecentFailure(BaseModel):
    task: str
    endpoint: str
    at: float = Field(description="Epoch seconds")
    error: str


class ModelQueue(BaseModel):
    model: str = Field(description="A model of the catalog")
    queued: int
    quarantined: int = Field(description="Wait to run alone, after losing several workers")
    running: int
    queued_s: float | None = Field(description="The work that waits, in seconds of one task after the other")
    predicted_wait_s: float | None = Field(description="Of one submitted now, if as many run at a time as do now")
    wait: Percentiles
    work: Percentiles
    batch: int | None = Field(description="How many took the last step together; null without one within a minute")
    step_s: float | None = Field(description="How long that step took, seconds")
    ended: dict[str, int] = Field(description="Tasks by how they ended")
    replicas: dict[str, int] | None = Field(description="By state; null where that is not known here")
    failures: list[RecentFailure] = Field(description="The last ten tasks that failed, newest first")


class Fleet(BaseModel):
    models: list[ModelQueue]
    store_bytes: int
    store_limit_bytes: int = Field(description="0: no limit")


@router.get("", responses=errors(403, 503))
async def get_fleet(services: Deps, caller: Operator) -> Fleet:
    used, most = await services.tasks.memory()
    replicas = await services.replicas()
    models = [await _model(services, name, replicas.get(name)) for name in services.catalog.models]
    return Fleet(models=models, store_bytes=used, store_limit_bytes=most)


async def _model(services: Services, name: str, replicas: dict[str, int] | None) -> ModelQueue:
    load = await load_of(services.tasks, name)
    pace = await services.tasks.pace(name)
    return ModelQueue(
        model=name,
        queued=load.queued,
        quarantined=load.quarantined,
        running=load.running,
        queued_s=load.queued_s,
        predicted_wait_s=load.wait_s,
        wait=_seconds(load.histograms[WAIT]),
        work=_seconds(load.histograms[WORK]),
        batch=pace[0] if pace else None,
        step_s=pace[1] if pace else None,
        ended=dict(load.counts),
        replicas=replicas,
        failures=[_failure(task) for task in await services.tasks.failures(name)],
    )


def _failure(task: Task) -> RecentFailure:
    error = str((task.details or {}).get("error", "no reason is given"))
    return RecentFailure(task=task.id, endpoint=task.endpoint, at=task.finished or task.created, error=error)


def _seconds(histogram: Histogram) -> Percentiles:
    half, most = (_bound(histogram.buckets, share) for share in (0.5, 0.95))
    return Percentiles(tasks=histogram.count, mean=histogram.mean, half=half, most=most)


def _bound(buckets: Sequence[tuple[float, int]], share: float) -> float | None:
    count = buckets[-1][1]
    bound = next((bound for bound, below in buckets if count and below >= share * count), math.inf)
    return bound if math.isfinite(bound) else None
