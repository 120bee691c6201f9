"""Figures for Prometheus: an app of its own, on a port of its own, one for the whole service.

They come from the task store, so it makes no difference which process answers; on the ingress they would be open to
every client, and behind its proxy nobody could tell who asks.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.http import errors
from serve_app.http.origin import KnownHosts
from serve_app.http.services import ANSWER_S
from serve_app.http.work_figures import work_figures
from serve_app.redis_store import connection
from serve_app.tasks.store import TaskStore
from serve_app.tasks.timings import WAIT, WORK, timings

PATH = "/metrics"

_GAUGES = {
    "queued": "Tasks that wait for work",
    "suspects": "Tasks that wait to run alone, after losing several workers",
    "leased": "Tasks that are being worked on",
}
_SECONDS = {
    WAIT: "From submission to the first start of work",
    WORK: "From the first start of work to the result, of tasks that became ready",
}


def create_metrics_app(settings: Settings, catalog: Catalog) -> FastAPI:
    """`/metrics` over the task store that `settings` names, for those who show `metrics.token`, if there is one."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        redis = connection.connect(settings.redis_url, answer_s=ANSWER_S)
        app.state.tasks = TaskStore(redis, settings.redis.prefix, settings.tasks.limits())
        try:
            yield
        finally:
            await redis.aclose()

    app = FastAPI(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    errors.install(app)
    token = settings.metrics.token.get_secret_value() if settings.metrics.token else None
    if not token:  # a web page whose name points at this machine would be shown them
        app.add_middleware(KnownHosts, settings=settings.service, open_paths=frozenset())

    @app.get(PATH)
    async def metrics(request: Request) -> PlainTextResponse:
        _check(request, token)
        text = generate_latest(_Figures(await _families(request.app.state.tasks, catalog)))
        return PlainTextResponse(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return app


def _check(request: Request, token: str | None) -> None:
    shown = request.headers.get("authorization", "")
    if token and not secrets.compare_digest(shown.encode(), f"Bearer {token}".encode()):
        raise HTTPException(401, "Show metrics.token: Authorization: Bearer <token>", {"WWW-Authenticate": "Bearer"})


class _Figures(Collector):
    """What `generate_latest` reads: families that are there already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _families(tasks: TaskStore, catalog: Catalog) -> list[Metric]:
    gauges = {
        name: GaugeMetricFamily(f"gen_tasks_{name}", meaning, labels=["lane"]) for name, meaning in _GAUGES.items()
    }
    events = CounterMetricFamily("gen_task_events", "Tasks by what happened to them", labels=["lane", "event"])
    seconds = {
        name: HistogramMetricFamily(f"gen_task_{name}_seconds", told, labels=["lane"])
        for name, told in _SECONDS.items()
    }
    for lane in catalog.models:
        counts = await tasks.counts(lane)
        for name, gauge in gauges.items():
            gauge.add_metric([lane], counts.pop(name))
        for event, count in sorted(counts.items()):
            events.add_metric([lane, event.lower().replace(" ", "_")], count)
        for name, found in (await timings(tasks.redis, tasks.prefix, lane)).items():
            buckets = [(floatToGoString(bound), count) for bound, count in found.buckets]
            seconds[name].add_metric([lane], buckets, found.sum_s)
    return [*gauges.values(), events, *seconds.values(), *await work_figures(tasks, catalog), *await _memory(tasks)]


async def _memory(tasks: TaskStore) -> list[Metric]:
    used, most = await tasks.memory()
    return [
        GaugeMetricFamily("gen_store_memory_bytes", "Memory that the task store's server uses", used),
        GaugeMetricFamily("gen_store_memory_limit_bytes", "Memory that it may use; 0: no limit", most),
    ]
