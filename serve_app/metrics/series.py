"""The Prometheus series. The table in `docs/metrics.md` is generated from here; dashboards and alerts use no others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)


class SeriesType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    """A sum and a count, whose ratio is the mean."""
    INFO = "info"
    """Always 1; the information is in the labels."""


COUNTER, GAUGE, HISTOGRAM = SeriesType.COUNTER, SeriesType.GAUGE, SeriesType.HISTOGRAM


class Source(StrEnum):
    INDEXES = "Redis, at scrape time"
    STEPS = "Redis, updated with every task event"
    MODELS = "replicas, when a task ends"
    PROCESSES = "ingress and dispatchers, every second"
    SERVE = "Ray Serve, at scrape time"
    SERVER = "Redis server, at scrape time"


_FAMILIES = {
    SeriesType.COUNTER: CounterMetricFamily,
    SeriesType.GAUGE: GaugeMetricFamily,
    SeriesType.HISTOGRAM: HistogramMetricFamily,
    SeriesType.SUMMARY: SummaryMetricFamily,
    SeriesType.INFO: InfoMetricFamily,
}
_SUFFIXES = {SeriesType.HISTOGRAM: ("_bucket", "_sum", "_count"), SeriesType.SUMMARY: ("_sum", "_count")}


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    """Name of the samples, without the suffixes of histograms and summaries."""
    type: SeriesType
    source: Source
    help: str
    labels: tuple[str, ...] = ()
    details: str = ""
    """Further documentation, such as the values of a label."""

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(self.name + suffix for suffix in _SUFFIXES.get(self.type, ("",)))

    @property
    def sample_labels(self) -> frozenset[str]:
        return frozenset((*self.labels, "le") if self.type is SeriesType.HISTOGRAM else self.labels)

    def family(self) -> Metric:
        name = self.name.removesuffix("_info") if self.type is SeriesType.INFO else self.name
        return _FAMILIES[self.type](name, self.help, labels=self.labels)


MODEL: Final = ("model",)

# Queues

QUEUED: Final = Series("gen_tasks_queued", GAUGE, Source.INDEXES, "Tasks waiting in the queue", MODEL)
QUARANTINED: Final = Series(
    "gen_tasks_quarantined",
    GAUGE,
    Source.INDEXES,
    "Quarantined tasks: after several crashes they wait to run alone",
    MODEL,
)
LEASED: Final = Series("gen_tasks_leased", GAUGE, Source.INDEXES, "Tasks leased by a dispatcher", MODEL)
OLDEST_WAIT: Final = Series(
    "gen_tasks_oldest_wait_seconds", GAUGE, Source.INDEXES, "Age of the oldest waiting task; 0 without one", MODEL
)
QUEUED_WORK: Final = Series(
    "gen_tasks_queued_work_seconds",
    GAUGE,
    Source.STEPS,
    "Estimated run time of all waiting tasks, one after another",
    MODEL,
    "absent until a task has succeeded",
)
PREDICTED_WAIT: Final = Series(
    "gen_tasks_predicted_wait_seconds",
    GAUGE,
    Source.STEPS,
    "Estimated wait of a task submitted now, at the current concurrency",
    MODEL,
    "absent until a task has succeeded",
)
PREDICTION_ERROR: Final = Series(
    "gen_prediction_error_ratio",
    GAUGE,
    Source.STEPS,
    "Mean error of predicted device seconds, of tasks of the last hour",
    MODEL,
    "0.1: ten percent; absent without any",
)
TASK_EVENTS: Final = Series(
    "gen_task_events_total",
    COUNTER,
    Source.STEPS,
    "Task events",
    ("model", "event"),
    "`accepted`; the outcomes `ready`, `error`, `request_moderated`, `content_moderated`; `cancelled`; `requeued`, "
    "`crashes`, `interruptions` (given up by the model), `reaped` (expired leases), `refused` "
    "(results after a lost lease)",
)
TASK_WAIT: Final = Series(
    "gen_task_wait_seconds", HISTOGRAM, Source.STEPS, "Queue wait, from submission to the first start of work", MODEL
)
TASK_WORK: Final = Series(
    "gen_task_work_seconds",
    HISTOGRAM,
    Source.STEPS,
    "Run time of successful tasks, from the first start of work",
    MODEL,
)
REAPER_LAG: Final = Series(
    "gen_reaper_lag_seconds",
    GAUGE,
    Source.INDEXES,
    "Time since the oldest expired lease or deadline that is not handled yet",
    ("model", "what"),
    "`leases`, `deadlines`",
)
SWEEPER_LAG: Final = Series(
    "gen_sweeper_lag_seconds", GAUGE, Source.INDEXES, "Time by which the next task to delete is overdue"
)

# Replicas and models

REPLICAS: Final = Series(
    "gen_replicas",
    GAUGE,
    Source.SERVE,
    "Ray Serve replicas",
    ("deployment", "state"),
    "`RUNNING`, `STARTING`, …; a model's deployment is named like its `model`; absent if Serve can't be asked",
)
MODEL_BUSY: Final = Series(
    "gen_model_busy_seconds_total", COUNTER, Source.MODELS, "Time with at least one task in the replica", MODEL
)
MODEL_CALLS: Final = Series(
    "gen_model_call_seconds_total",
    COUNTER,
    Source.MODELS,
    "Time inside the model",
    ("model", "call"),
    "`encode`, `steps`, `finish`, which run in parallel",
)
MODEL_STEPS: Final = Series("gen_model_steps_total", COUNTER, Source.MODELS, "Denoising steps of batches", MODEL)
MODEL_MEMBERS: Final = Series(
    "gen_model_step_members_total",
    COUNTER,
    Source.MODELS,
    "Images in these steps",
    MODEL,
    "divided by the steps: the mean batch size",
)
MODEL_BATCH: Final = Series("gen_model_batch_size", HISTOGRAM, Source.MODELS, "Images per step", MODEL)
MODEL_STEP: Final = Series("gen_model_step_seconds", HISTOGRAM, Source.MODELS, "Duration of a step", MODEL)
MODEL_LOAD: Final = Series(
    "gen_model_load_seconds",
    SeriesType.SUMMARY,
    Source.MODELS,
    "Time to load the model",
    MODEL,
    "reported with a replica's first task",
)
MODEL_FAULTS: Final = Series(
    "gen_model_faults_total",
    COUNTER,
    Source.MODELS,
    "Faults inside models",
    ("model", "fault"),
    "`out_of_memory`, `not_finite` (NaN), `compile_fallbacks`, `attention_fallbacks`",
)
CACHE_LOOKUPS: Final = Series(
    "gen_model_cache_lookups_total",
    COUNTER,
    Source.MODELS,
    "Cache lookups",
    ("model", "cache", "found"),
    "`prompts`, `references`, `adapters`; found `yes`, `no`",
)
CACHE_EVICTIONS: Final = Series(
    "gen_model_cache_evictions_total", COUNTER, Source.MODELS, "Cache evictions", ("model", "cache")
)
MODEL_SETUP: Final = Series(
    "gen_model_setup_info",
    SeriesType.INFO,
    Source.MODELS,
    "How the replica that reported last runs the model",
    MODEL,
    "further labels: `device`, `dtype` and why, attention, …",
)

# Costs

DEVICE: Final = Series(
    "gen_device_seconds_total",
    COUNTER,
    Source.MODELS,
    "Device time of tasks",
    ("model", "endpoint"),
    "each task's share of its batches; without cancelled and lost attempts",
)
PROJECT_DEVICE: Final = Series(
    "gen_project_device_seconds_total",
    COUNTER,
    Source.MODELS,
    "Device time by project",
    ("project",),
    "the top `metrics.projects` only",
)
RESULTS: Final = Series("gen_results_total", COUNTER, Source.STEPS, "Successful tasks", ("endpoint",))
RESULT_CREDITS: Final = Series(
    "gen_results_credits_total", COUNTER, Source.STEPS, "Credits spent on successful tasks", ("endpoint",)
)
PROJECT_CREDITS: Final = Series(
    "gen_project_credits_total",
    COUNTER,
    Source.STEPS,
    "Credits spent by project",
    ("project",),
    "the top `metrics.projects` only",
)
CREDITS_BALANCE: Final = Series("gen_credits_balance", GAUGE, Source.STEPS, "Credits left, of all organizations")
CREDITS_HELD: Final = Series("gen_credits_held", GAUGE, Source.STEPS, "Credits held for unfinished tasks")
CREDITS_SPENT: Final = Series("gen_credits_spent_total", COUNTER, Source.STEPS, "Credits spent")
CREDITS_GRANTED: Final = Series(
    "gen_credits_granted", GAUGE, Source.STEPS, "Credits granted, net", (), "equals balance + held + spent"
)

# Requests

HTTP: Final = Series(
    "gen_http_request_duration_seconds",
    HISTOGRAM,
    Source.PROCESSES,
    "Time to the first byte of the response",
    ("method", "status", "route"),
    "status `2xx`, …; route template (`/v1/tasks/{task_id}`), or `unmatched`; calls of MCP tools count twice",
)
REFUSED: Final = Series(
    "gen_submissions_refused_total",
    COUNTER,
    Source.PROCESSES,
    "Valid submissions that were refused",
    ("endpoint", "reason"),
    "`queue_full`, `too_many_active`, `too_fast`, `insufficient_credits`, `spending_limit_reached`, `store_full`, …",
)
MODERATION: Final = Series(
    "gen_moderation_seconds", HISTOGRAM, Source.PROCESSES, "Moderation time", ("what",), "`request`, `output`"
)

# Webhooks

WEBHOOKS_PENDING: Final = Series("gen_webhooks_pending", GAUGE, Source.INDEXES, "Deliveries not finished")
WEBHOOKS_OLDEST: Final = Series(
    "gen_webhooks_oldest_pending_seconds",
    GAUGE,
    Source.INDEXES,
    "Time by which the oldest delivery is overdue; 0 without one",
)
WEBHOOK_EVENTS: Final = Series(
    "gen_webhook_events_total",
    COUNTER,
    Source.STEPS,
    "Delivery attempts",
    ("event",),
    "`delivered`, `put_off` (will be retried), `failed` (given up)",
)
WEBHOOK_DELAY: Final = Series(
    "gen_webhook_delay_seconds", HISTOGRAM, Source.STEPS, "Time from the end of a task to its delivery"
)

# Store

STORE_MEMORY: Final = Series("gen_store_memory_bytes", GAUGE, Source.SERVER, "Memory used")
STORE_LIMIT: Final = Series("gen_store_memory_limit_bytes", GAUGE, Source.SERVER, "Limit (`maxmemory`); 0: none")

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Series))

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
_BEGIN: Final = "<!-- series -->\n"
_END: Final = "<!-- end of series -->"


def fill_table(text: str) -> str:
    """Replaces the table of the document. Raises ValueError if it has no markers for one."""
    before, begin, remaining = text.partition(_BEGIN)
    _, end, after = remaining.partition(_END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT.name} must have the lines {_BEGIN.strip()} and {_END}")
    return f"{before}{begin}\n{table()}\n\n{end}{after}"


def table() -> str:
    rows = ["| series | type | meaning | source |", "|---|---|---|---|", *map(_row, ALL)]
    return "\n".join(rows)


def _row(series: Series) -> str:
    labels = f" `{{{', '.join(series.labels)}}}`" if series.labels else ""
    meaning = f"{series.help}; {series.details}" if series.details else series.help
    return f"| `{series.name}`{labels} | {series.type} | {meaning} | {series.source} |"


if __name__ == "__main__":
    DOCUMENT.write_text(fill_table(DOCUMENT.read_text()))
