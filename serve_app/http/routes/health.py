"""Liveness, readiness, figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps, Services
from serve_app.tasks.store import TaskStore
from serve_app.tasks.timings import WAIT, WORK, timings

router = APIRouter(tags=["health"])

_GAUGES = {
    "queued": "Tasks that wait for work",
    "suspects": "Tasks that wait to run alone, after losing several workers",
    "leased": "Tasks that are being worked on",
}
_SECONDS = {
    WAIT: "From submission to the first start of work",
    WORK: "From the first start of work to the result, of tasks that became ready",
}


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """This replica answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=errors(503))
async def readyz(services: Deps) -> dict[str, str]:
    """This replica can take work: the task store is in reach."""
    await services.tasks.ping()
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(services: Deps) -> PlainTextResponse:
    """Figures in the Prometheus text format. They come from the task store, so every replica answers the same."""
    text = generate_latest(_Figures(await _families(services)))
    return PlainTextResponse(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Figures(Collector):
    """What `generate_latest` reads: families that are there already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _families(services: Services) -> list[Metric]:
    tasks = services.tasks
    gauges = {
        name: GaugeMetricFamily(f"gen_tasks_{name}", meaning, labels=["lane"]) for name, meaning in _GAUGES.items()
    }
    events = CounterMetricFamily("gen_task_events", "Tasks by what happened to them", labels=["lane", "event"])
    seconds = {
        name: HistogramMetricFamily(f"gen_task_{name}_seconds", told, labels=["lane"])
        for name, told in _SECONDS.items()
    }
    for lane in services.catalog.models:
        counts = await tasks.counts(lane)
        for name, gauge in gauges.items():
            gauge.add_metric([lane], counts.pop(name))
        for event, count in sorted(counts.items()):
            events.add_metric([lane, event.lower().replace(" ", "_")], count)
        for name, found in (await timings(tasks.redis, tasks.prefix, lane)).items():
            buckets = [(floatToGoString(bound), count) for bound, count in found.buckets]
            seconds[name].add_metric([lane], buckets, found.sum_s)
    return [*gauges.values(), events, *seconds.values(), *await _memory(tasks)]


async def _memory(tasks: TaskStore) -> list[Metric]:
    used, most = await tasks.memory()
    return [
        GaugeMetricFamily("gen_store_memory_bytes", "Memory that the task store's server uses", used),
        GaugeMetricFamily("gen_store_memory_limit_bytes", "Memory that it may use; 0: no limit", most),
    ]
