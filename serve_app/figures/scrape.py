"""What one scrape tells: a family for each declared series, and what was added to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from deployments.contract.histogram import Histogram
from serve_app.figures.declared import ALL
from serve_app.figures.series import Series


class Scrape(Collector):
    """Labels are given by name; KeyError for others than the declared ones."""

    def __init__(self) -> None:
        self._families = {series: series.family() for series in ALL}

    def collect(self) -> Iterable[Metric]:
        return self._families.values()

    def add(self, series: Series, value: float, **labels: str) -> None:
        cast(Any, self._families[series]).add_metric(_values(series, labels), value)

    def add_histogram(self, series: Series, found: Histogram, **labels: str) -> None:
        buckets = [(floatToGoString(bound), count) for bound, count in found.buckets]
        cast(HistogramMetricFamily, self._families[series]).add_metric(_values(series, labels), buckets, found.sum)

    def add_summary(self, series: Series, count: float, total: float, **labels: str) -> None:
        cast(SummaryMetricFamily, self._families[series]).add_metric(_values(series, labels), int(count), total)

    def add_info(self, series: Series, told: Mapping[str, str], **labels: str) -> None:
        cast(InfoMetricFamily, self._families[series]).add_metric(_values(series, labels), dict(told))


def _values(series: Series, labels: Mapping[str, str]) -> list[str]:
    if set(labels) != set(series.labels):
        raise KeyError(f"{series.name} has the labels {series.labels}, not {tuple(labels)}")
    return [labels[name] for name in series.labels]
