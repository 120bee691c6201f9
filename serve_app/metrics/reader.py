"""Reads all metrics from the task store, once per scrape.

It reads counters and the first entries of indexes only. Its cost grows with the number of queues, routes and
organizations, not with the number of tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from redis.asyncio import Redis

from deployments.contract import counts
from deployments.contract.counts import Histogram, ReplicaCounts
from serve_app.accounts.credits import CreditStore
from serve_app.metrics import series as all_series
from serve_app.metrics.series import ALL, Series
from serve_app.storage.tally import TIMES, CounterName, read_counters
from serve_app.tasks.queue_load import WAIT, WORK, get_queue_load
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.tasks.windows import WindowReader
from serve_app.webhooks.outbox import Outbox

logger = logging.getLogger(__name__)


class Scrape(Collector):
    """One scrape under construction. Labels other than the declared ones raise KeyError."""

    def __init__(self) -> None:
        self._families = {series: series.family() for series in ALL}

    def collect(self) -> Iterable[Metric]:
        return self._families.values()

    def add(self, series: Series, value: float, **labels: str) -> None:
        cast(Any, self._families[series]).add_metric(_values(series, labels), value)

    def add_histogram(self, series: Series, histogram: Histogram, **labels: str) -> None:
        buckets = [(floatToGoString(bound), count) for bound, count in histogram.buckets]
        cast(HistogramMetricFamily, self._families[series]).add_metric(_values(series, labels), buckets, histogram.sum)

    def add_summary(self, series: Series, count: float, total: float, **labels: str) -> None:
        cast(SummaryMetricFamily, self._families[series]).add_metric(_values(series, labels), int(count), total)

    def add_info(self, series: Series, values: Mapping[str, str], **labels: str) -> None:
        cast(InfoMetricFamily, self._families[series]).add_metric(_values(series, labels), dict(values))


def _values(series: Series, labels: Mapping[str, str]) -> list[str]:
    if set(labels) != set(series.labels):
        raise KeyError(f"{series.name} has the labels {series.labels}, not {tuple(labels)}")
    return [labels[name] for name in series.labels]


_REPLICAS_TIMEOUT_S: Final = 2.0


class MetricsReader:
    def __init__(
        self,
        redis: Redis,
        tasks: TaskStore,
        queues: Sequence[str],
        *,
        projects: int,
        replicas: Callable[[], Awaitable[Mapping[str, ReplicaCounts]]],
    ) -> None:
        """`redis` must decode responses. Series by project cover the `projects` top projects. `replicas` counts the
        replicas of each deployment.
        """
        self._redis = redis
        self._tasks = tasks
        self._windows = WindowReader(tasks)
        self._queues = tuple(queues)
        self._projects = projects
        self._replicas = replicas
        self._credits = CreditStore(redis, tasks.prefix)
        self._outbox = Outbox(redis, tasks.prefix)

    async def read(self) -> Scrape:
        """Raises RedisError."""
        scrape, tasks = Scrape(), self._tasks
        for queue in self._queues:
            await collect_queue(tasks, self._windows, queue, scrape)
            await collect_model(tasks, queue, scrape)
        await collect_credits(self._credits, tasks, self._projects, scrape)
        await collect_counters(self._redis, tasks.prefix, scrape)
        await collect_webhooks(self._outbox, scrape)
        scrape.add(all_series.SWEEPER_LAG, await tasks.reads.sweep_lag())
        memory = await tasks.reads.memory()
        scrape.add(all_series.STORE_MEMORY, memory.used)
        scrape.add(all_series.STORE_LIMIT, memory.limit)
        await self._collect_replicas(scrape)
        return scrape

    async def _collect_replicas(self, scrape: Scrape) -> None:
        try:
            async with asyncio.timeout(_REPLICAS_TIMEOUT_S):
                replicas = await self._replicas()
        except Exception as problem:
            # Serve may fail in any way; the other series are still served.
            logger.warning("Ray Serve did not report its replicas: %s", type(problem).__name__)
            return
        for deployment, counts_by_state in sorted(replicas.items()):
            for state, count in sorted(counts_by_state.states.items()):
                scrape.add(all_series.REPLICAS, count, deployment=deployment, state=state)


async def collect_counters(redis: Redis, prefix: str, scrape: Scrape) -> None:
    requests = await read_counters(redis, prefix, CounterName.REQUESTS)
    for name in _histogram_names(requests):
        method, status, route = name.split(" ", 2)
        histogram = TIMES.read(name, requests)
        scrape.add_histogram(all_series.HTTP, histogram, method=method, status=status, route=route)
    moderation = await read_counters(redis, prefix, CounterName.MODERATION)
    for what in _histogram_names(moderation):
        scrape.add_histogram(all_series.MODERATION, TIMES.read(what, moderation), what=what)
    for name, count in sorted((await read_counters(redis, prefix, CounterName.REFUSALS)).items()):
        reason, endpoint = name.split(" ", 1)
        scrape.add(all_series.REFUSED, float(count), endpoint=endpoint, reason=reason)


def _histogram_names(raw: Mapping[str, str]) -> list[str]:
    return sorted({field.rpartition(":")[0] for field in raw})


_PER_CREDIT = 1000


async def collect_credits(credits: CreditStore, tasks: TaskStore, projects: int, scrape: Scrape) -> None:
    for endpoint, (tasks_ready, cost) in sorted((await credits.sum_by_endpoint()).items()):
        scrape.add(all_series.RESULTS, tasks_ready, endpoint=endpoint)
        scrape.add(all_series.RESULT_CREDITS, cost / _PER_CREDIT, endpoint=endpoint)
    for project, cost in (await credits.list_top_spenders(projects)).items():
        scrape.add(all_series.PROJECT_CREDITS, cost / _PER_CREDIT, project=project)
    for project, seconds in (await tasks.reads.device_seconds_by_project(projects)).items():
        scrape.add(all_series.PROJECT_DEVICE, seconds, project=project)
    sums = await credits.sums()
    scrape.add(all_series.CREDITS_BALANCE, sums.balance / _PER_CREDIT)
    scrape.add(all_series.CREDITS_HELD, sums.held / _PER_CREDIT)
    scrape.add(all_series.CREDITS_SPENT, sums.spent / _PER_CREDIT)
    scrape.add(all_series.CREDITS_GRANTED, sums.granted / _PER_CREDIT)


async def collect_webhooks(outbox: Outbox, scrape: Scrape) -> None:
    backlog = await outbox.backlog()
    scrape.add(all_series.WEBHOOKS_PENDING, backlog.deliveries)
    scrape.add(all_series.WEBHOOKS_OLDEST, backlog.oldest_s)
    events, delay = await outbox.count_outcomes()
    for event, count in events.items():
        scrape.add(all_series.WEBHOOK_EVENTS, count, event=event)
    scrape.add_histogram(all_series.WEBHOOK_DELAY, delay)


_ZERO_EVENTS: Final = dict.fromkeys(
    (
        "accepted",
        *(status.value for status in Status if status.terminal),
        "cancelled",
        "requeued",
        "crashes",
        "interruptions",
        "reaped",
        "refused",
    ),
    0,
)
"""Every event has a counter from the start: Prometheus does not see the first increase of a counter that appears."""


async def collect_queue(tasks: TaskStore, windows: WindowReader, queue: str, scrape: Scrape) -> None:
    load = await get_queue_load(tasks, windows, queue)
    scrape.add(all_series.QUEUED, load.queued, model=queue)
    scrape.add(all_series.QUARANTINED, load.quarantined, model=queue)
    scrape.add(all_series.LEASED, load.running, model=queue)
    for event, count in sorted({**_ZERO_EVENTS, **load.counts}.items()):
        scrape.add(all_series.TASK_EVENTS, count, model=queue, event=event.lower().replace(" ", "_"))
    ages = await tasks.reads.ages(queue)
    scrape.add(all_series.OLDEST_WAIT, ages.waiting, model=queue)
    scrape.add(all_series.REAPER_LAG, ages.lease, model=queue, what="leases")
    scrape.add(all_series.REAPER_LAG, ages.deadline, model=queue, what="deadlines")
    scrape.add_histogram(all_series.TASK_WAIT, load.histograms[WAIT], model=queue)
    scrape.add_histogram(all_series.TASK_WORK, load.histograms[WORK], model=queue)
    if (error := (await windows.read(queue, "1h")).prediction_error) is not None:
        scrape.add(all_series.PREDICTION_ERROR, error, model=queue)
    if load.queued_s is not None and load.wait_s is not None:
        scrape.add(all_series.QUEUED_WORK, load.queued_s, model=queue)
        scrape.add(all_series.PREDICTED_WAIT, load.wait_s, model=queue)


async def collect_model(tasks: TaskStore, queue: str, scrape: Scrape) -> None:
    """Adds what the replicas of a model reported; nothing before the first report.

    The share of a replica's time spent in steps is `gen_model_call_seconds_total{call="steps"}` divided by
    `gen_model_busy_seconds_total`.
    """
    for endpoint, seconds in sorted((await tasks.reads.device_seconds(queue)).items()):
        scrape.add(all_series.DEVICE, seconds, model=queue, endpoint=endpoint)
    work = await tasks.reads.work(queue)
    if not work:
        return
    scrape.add(all_series.MODEL_BUSY, work.get(counts.BUSY_S, 0), model=queue)
    scrape.add(all_series.MODEL_STEPS, work.get(counts.STEPS, 0), model=queue)
    scrape.add(all_series.MODEL_MEMBERS, work.get(counts.MEMBERS, 0), model=queue)
    batches = counts.BATCHES.read(counts.BATCH, work, total=counts.MEMBERS)
    scrape.add_histogram(all_series.MODEL_BATCH, batches, model=queue)
    scrape.add_histogram(all_series.MODEL_STEP, counts.STEP_TIMES.read(counts.STEP, work), model=queue)
    scrape.add_summary(all_series.MODEL_LOAD, work.get(counts.LOADS, 0), work.get(counts.LOAD_S, 0), model=queue)
    for fault in counts.FAULTS:
        scrape.add(all_series.MODEL_FAULTS, work.get(fault, 0), model=queue, fault=fault)
    for call in counts.CALLS:
        scrape.add(all_series.MODEL_CALLS, work.get(counts.seconds_field(call), 0), model=queue, call=call)
    for cache in counts.CACHES:
        scrape.add(all_series.CACHE_LOOKUPS, work.get(counts.hits(cache), 0), model=queue, cache=cache, found="yes")
        scrape.add(all_series.CACHE_LOOKUPS, work.get(counts.misses(cache), 0), model=queue, cache=cache, found="no")
        scrape.add(all_series.CACHE_EVICTIONS, work.get(counts.evictions(cache), 0), model=queue, cache=cache)
    scrape.add_info(all_series.MODEL_SETUP, await tasks.reads.setup(queue), model=queue)
