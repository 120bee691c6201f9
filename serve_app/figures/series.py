"""What is known of a series before any of it is read: its name, its kind, its labels, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
