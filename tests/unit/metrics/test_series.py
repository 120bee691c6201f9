"""Metrics: names as Prometheus asks for, documentation, and PromQL expressions of dashboards."""

from __future__ import annotations

import re

import pytest
from support.promql import find_faults

from serve_app.metrics.reader import Scrape
from serve_app.metrics.series import ALL, DOCUMENT, Series, SeriesType, fill_table

UNITS = ("seconds", "bytes", "credits")
NOT_BASE_UNITS = re.compile(r"_(ms|milliseconds|microseconds|minutes|hours|kb|mb|percent|ratio_percent)(_|$)")
WITHOUT_UNIT = {"gen_credits_balance", "gen_credits_held", "gen_credits_granted", "gen_credits_spent_total"}


@pytest.mark.parametrize("series", ALL, ids=lambda series: series.name)
def test_name_is_conventional_and_unique(series: Series) -> None:
    assert re.fullmatch(r"gen_[a-z]+(_[a-z]+)*", series.name)
    assert not NOT_BASE_UNITS.search(series.name)
    assert series.name.endswith("_total") == (series.type is SeriesType.COUNTER)
    assert series.name.endswith("_info") == (series.type is SeriesType.INFO)
    assert not series.name.endswith(("_count", "_sum", "_bucket"))
    bare = series.name.removesuffix("_total")
    assert series.name in WITHOUT_UNIT or all(bare.endswith(unit) for unit in UNITS if f"_{unit}" in bare)
    assert all(re.fullmatch(r"[a-z]+", label) for label in series.labels)
    assert not {"le", "quantile", "job", "instance"} & set(series.labels)
    assert [each.name for each in ALL].count(series.name) == 1


def test_undeclared_labels_are_refused() -> None:
    scrape = Scrape()
    [queued] = [series for series in ALL if series.name == "gen_tasks_queued"]
    scrape.add(queued, 3, model="a")
    for labels in ({}, {"line": "a"}, {"model": "a", "project": "p"}):
        with pytest.raises(KeyError, match="gen_tasks_queued has the labels"):
            scrape.add(queued, 3, **labels)


def test_documentation_has_all_metrics() -> None:
    text = DOCUMENT.read_text()
    assert fill_table(text) == text, "write it anew: make figures"
    with pytest.raises(ValueError, match="must have the lines"):
        fill_table("# Metrics")


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("gen_tasks_wating", "there is no gen_tasks_wating"),
        ("gen_task_wait_seconds", "there is no gen_task_wait_seconds"),  # of a histogram, only its parts
        ('gen_tasks_queued{lne="a"}', "gen_tasks_queued has no lne"),
        ("sum by (endpoint) (gen_tasks_queued)", "none of gen_tasks_queued has endpoint"),
        ("1 + 1", "it has no metric"),
    ],
)
def test_undeclared_metric_or_label_is_a_fault(expression: str, fault: str) -> None:
    assert list(find_faults(expression)) == [fault]
