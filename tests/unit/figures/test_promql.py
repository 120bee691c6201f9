"""What tests of dashboards and alerts go by must itself see what is wrong."""

from __future__ import annotations

import pytest
from support.promql import asked
from support.series import faults


def test_names_and_labels_are_found() -> None:
    found = asked(
        'sum by (le, lane) (rate(a_bucket{lane=~"x|by", le!="1"}[5m])) / ignoring (le) group_left () b > 0.5 '
        'and on (lane) label_replace(c{x="}"} > 0, "made", "$1", "x", "(.*)") offset 5m'
    )
    assert found.metrics == {"a_bucket": {"lane", "le"}, "b": set(), "c": {"x"}}
    assert found.labels == {"le", "lane"}
    assert found.made == {"made"}


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("gen_tasks_wating", "there is no gen_tasks_wating"),
        ("gen_task_wait_seconds", "there is no gen_task_wait_seconds"),  # of a histogram, only its parts
        ('gen_tasks_queued{lne="a"}', "gen_tasks_queued has no lne"),
        ("sum by (endpoint) (gen_tasks_queued)", "none of gen_tasks_queued has endpoint"),
        ("1 + 1", "it asks for nothing"),
    ],
)
def test_what_is_not_declared_is_seen(expression: str, fault: str) -> None:
    assert list(faults(expression)) == [fault]
