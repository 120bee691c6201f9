"""Every series that there is. `docs/metrics.md` has its table from here; dashboards and alerts name nothing else."""

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


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    """A sum and a count, whose ratio is the mean."""
    INFO = "info"
    """Always 1; what it tells is in its labels, some of which depend on what there is to tell."""


class Source(StrEnum):
    """Who tells it."""

    INDEXES = "indexes of the task store, when asked"
    STEPS = "the steps of tasks, as they are taken"
    MODELS = "models, with the ends of their jobs"
    PROCESSES = "ingress and dispatchers, once a second"
    SERVE = "Ray Serve, when asked"
    SERVER = "the Redis server, when asked"


_FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
    Kind.SUMMARY: SummaryMetricFamily,
    Kind.INFO: InfoMetricFamily,
}
_SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count"), Kind.SUMMARY: ("_sum", "_count")}


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    """As it is scraped, but for what histograms and summaries put behind it."""
    kind: Kind
    source: Source
    help: str
    labels: tuple[str, ...] = ()
    about: str = ""
    """What else the documentation says of it, such as what values a label has."""

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of what is scraped."""
        return tuple(self.name + suffix for suffix in _SUFFIXES.get(self.kind, ("",)))

    @property
    def sample_labels(self) -> frozenset[str]:
        return frozenset((*self.labels, "le") if self.kind is Kind.HISTOGRAM else self.labels)

    def family(self) -> Metric:
        """An empty one."""
        name = self.name.removesuffix("_info") if self.kind is Kind.INFO else self.name
        return _FAMILIES[self.kind](name, self.help, labels=self.labels)


MODEL: Final = ("model",)

# Queues

QUEUED: Final = Series("gen_tasks_queued", Kind.GAUGE, Source.INDEXES, "Tasks that wait for work", MODEL)
QUARANTINED: Final = Series(
    "gen_tasks_quarantined",
    Kind.GAUGE,
    Source.INDEXES,
    "Tasks that wait to run alone, after losing several workers",
    MODEL,
)
LEASED: Final = Series("gen_tasks_leased", Kind.GAUGE, Source.INDEXES, "Tasks that are being worked on", MODEL)
OLDEST_WAIT: Final = Series(
    "gen_tasks_oldest_wait_seconds",
    Kind.GAUGE,
    Source.INDEXES,
    "Since the submission of the task that has waited longest; 0 where none waits",
    MODEL,
)
QUEUED_WORK: Final = Series(
    "gen_tasks_queued_work_seconds",
    Kind.GAUGE,
    Source.STEPS,
    "Work that waits, one task after the other, as long as tasks took so far",
    MODEL,
    "from the first task that became ready on",
)
PREDICTED_WAIT: Final = Series(
    "gen_tasks_predicted_wait_seconds",
    Kind.GAUGE,
    Source.STEPS,
    "Wait of a task submitted now, if as many run at a time as do now",
    MODEL,
    "the same",
)
TASK_EVENTS: Final = Series(
    "gen_task_events_total",
    Kind.COUNTER,
    Source.STEPS,
    "Tasks by what happened to them",
    ("model", "event"),
    "`accepted`, each outcome (`ready`, `error`, `request_moderated`, `content_moderated`), `cancelled`, `put_back`, "
    "`crashes`, `interruptions`, `reaped`, `refused` (results of workers that had lost their lease)",
)
TASK_WAIT: Final = Series(
    "gen_task_wait_seconds", Kind.HISTOGRAM, Source.STEPS, "From submission to the first start of work", MODEL
)
TASK_WORK: Final = Series(
    "gen_task_work_seconds",
    Kind.HISTOGRAM,
    Source.STEPS,
    "From the first start of work to the result, of tasks that became ready",
    MODEL,
)
REAPER_LAG: Final = Series(
    "gen_reaper_lag_seconds",
    Kind.GAUGE,
    Source.INDEXES,
    "Since the end of the lease or deadline that is longest over and not dealt with",
    ("model", "what"),
    "`leases`, `deadlines`",
)
SWEEPER_LAG: Final = Series(
    "gen_sweeper_lag_seconds", Kind.GAUGE, Source.INDEXES, "Since the task was due that is to be forgotten next"
)

# Replicas and models

REPLICAS: Final = Series(
    "gen_replicas",
    Kind.GAUGE,
    Source.SERVE,
    "Replicas of Ray Serve by deployment and state",
    ("deployment", "state"),
    "a model's deployment has the name of its model; `RUNNING`, `STARTING`, …; missing where Serve can't be asked",
)
MODEL_BUSY: Final = Series(
    "gen_model_busy_seconds_total", Kind.COUNTER, Source.MODELS, "Replicas' seconds with a job or more", MODEL
)
MODEL_CALLS: Final = Series(
    "gen_model_call_seconds_total",
    Kind.COUNTER,
    Source.MODELS,
    "Of them, inside the model",
    ("model", "call"),
    "`encode`, `steps`, `finish`, which go on beside each other",
)
MODEL_STEPS: Final = Series(
    "gen_model_steps_total", Kind.COUNTER, Source.MODELS, "Forwards of any number of pictures", MODEL
)
MODEL_MEMBERS: Final = Series(
    "gen_model_step_members_total",
    Kind.COUNTER,
    Source.MODELS,
    "Pictures in them, all together",
    MODEL,
    "by the steps, that is the mean batch",
)
MODEL_BATCH: Final = Series(
    "gen_model_batch_size", Kind.HISTOGRAM, Source.MODELS, "Pictures that took a step together", MODEL
)
MODEL_STEP: Final = Series("gen_model_step_seconds", Kind.HISTOGRAM, Source.MODELS, "How long a step took", MODEL)
MODEL_LOAD: Final = Series(
    "gen_model_load_seconds",
    Kind.SUMMARY,
    Source.MODELS,
    "How long replicas took to load their model",
    MODEL,
    "of those that have ended a job",
)
MODEL_FAULTS: Final = Series(
    "gen_model_faults_total",
    Kind.COUNTER,
    Source.MODELS,
    "What went wrong inside models",
    ("model", "fault"),
    "`out_of_memory`, `not_finite` (NaN), `compile_fallbacks`, `attention_fallbacks`",
)
CACHE_LOOKUPS: Final = Series(
    "gen_model_cache_lookups_total",
    Kind.COUNTER,
    Source.MODELS,
    "By whether it was kept from an earlier job",
    ("model", "cache", "found"),
    "`prompts`, `references`, `adapters`; `yes`, `no`",
)
CACHE_EVICTIONS: Final = Series(
    "gen_model_cache_evictions_total", Kind.COUNTER, Source.MODELS, "Left for want of room", ("model", "cache")
)
MODEL_SETUP: Final = Series(
    "gen_model_setup_info",
    Kind.INFO,
    Source.MODELS,
    "How the replica that told last runs its model",
    MODEL,
    "and `device`, `dtype` and why, attention, as the model has them",
)

# Costs

DEVICE: Final = Series(
    "gen_device_seconds_total",
    Kind.COUNTER,
    Source.MODELS,
    "Time of models' devices by what it was spent on",
    ("model", "endpoint"),
    "each task's share of what was done for several together; of attempts with an outcome, so without those that "
    "were cancelled or lost",
)
PROJECT_DEVICE: Final = Series(
    "gen_project_device_seconds_total",
    Kind.COUNTER,
    Source.MODELS,
    "The same by project",
    ("project",),
    "the `metrics.projects` with most of it; the others are what is missing to the sum by endpoint",
)
RESULTS: Final = Series("gen_results_total", Kind.COUNTER, Source.STEPS, "Tasks that became ready", ("endpoint",))
CREDITS_OF_RESULTS: Final = Series(
    "gen_results_credits_total", Kind.COUNTER, Source.STEPS, "Credits that they cost", ("endpoint",)
)
PROJECT_CREDITS: Final = Series(
    "gen_project_credits_total",
    Kind.COUNTER,
    Source.STEPS,
    "The same by project",
    ("project",),
    "the `metrics.projects` that paid most",
)
CREDITS_BALANCE: Final = Series(
    "gen_credits_balance", Kind.GAUGE, Source.STEPS, "Credits that organizations can spend, together"
)
CREDITS_HELD: Final = Series("gen_credits_held", Kind.GAUGE, Source.STEPS, "Credits held for tasks on their way")
CREDITS_SPENT: Final = Series("gen_credits_spent_total", Kind.COUNTER, Source.STEPS, "Credits spent")
CREDITS_GRANTED: Final = Series(
    "gen_credits_granted",
    Kind.GAUGE,
    Source.STEPS,
    "Credits granted, less those taken back",
    (),
    "balance, held and spent together",
)

# Requests

HTTP: Final = Series(
    "gen_http_request_duration_seconds",
    Kind.HISTOGRAM,
    Source.PROCESSES,
    "To the beginning of the answer",
    ("method", "status", "route"),
    "`2xx`, …; the route as the API names it (`/v1/tasks/{task_id}`), `unmatched` for paths that there are not. What "
    "a tool asks for at `/mcp` counts for itself, too",
)
REFUSED: Final = Series(
    "gen_submissions_refused_total",
    Kind.COUNTER,
    Source.PROCESSES,
    "Requests for work that was not taken, though they were in order",
    ("endpoint", "reason"),
    "`queue_full`, `too_many_active`, `too_fast`, `insufficient_credits`, `spending_limit_reached`, `store_full`, …",
)
MODERATION: Final = Series(
    "gen_moderation_seconds",
    Kind.HISTOGRAM,
    Source.PROCESSES,
    "How long moderation took",
    ("what",),
    "`request`, `output`",
)

# Webhooks

WEBHOOKS_PENDING: Final = Series(
    "gen_webhooks_pending", Kind.GAUGE, Source.INDEXES, "Deliveries that wait or are being sent"
)
WEBHOOKS_OLDEST: Final = Series(
    "gen_webhooks_oldest_pending_seconds",
    Kind.GAUGE,
    Source.INDEXES,
    "Since the oldest of them was due; 0 where there is none",
)
WEBHOOK_EVENTS: Final = Series(
    "gen_webhook_events_total",
    Kind.COUNTER,
    Source.STEPS,
    "Deliveries by what happened to them",
    ("event",),
    "`delivered`, `put_off` to another try, `failed` for good",
)
WEBHOOK_DELAY: Final = Series(
    "gen_webhook_delay_seconds", Kind.HISTOGRAM, Source.STEPS, "From the end of a task to its delivered webhook"
)

# Store

STORE_MEMORY: Final = Series(
    "gen_store_memory_bytes", Kind.GAUGE, Source.SERVER, "Memory that the task store's server uses"
)
STORE_LIMIT: Final = Series(
    "gen_store_memory_limit_bytes", Kind.GAUGE, Source.SERVER, "Memory that it may use; 0: no limit"
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Series))

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
_BEGIN: Final = "<!-- series -->\n"
_END: Final = "<!-- end of series -->"


def fill_table(text: str) -> str:
    """The document with its table written anew. Raises ValueError where it has no place for one."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT.name} must have the lines {_BEGIN.strip()} and {_END}")
    return f"{before}{begin}\n{table()}\n\n{end}{after}"


def table() -> str:
    rows = ["| series | kind | what it tells | who tells it |", "|---|---|---|---|", *map(_row, ALL)]
    return "\n".join(rows)


def _row(series: Series) -> str:
    labels = f" `{{{', '.join(series.labels)}}}`" if series.labels else ""
    told = f"{series.help}; {series.about}" if series.about else series.help
    return f"| `{series.name}`{labels} | {series.kind} | {told} | {series.source} |"


if __name__ == "__main__":
    DOCUMENT.write_text(fill_table(DOCUMENT.read_text()))
