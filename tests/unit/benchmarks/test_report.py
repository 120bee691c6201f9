from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from benchmarks.interval import Interval
from benchmarks.report import Report, Target

ROUNDS = Interval.of_median([0.9, 0.95, 1.0])
TARGETS = [
    Target("wait", 12.5, 10, "ms"),
    Target("ratio", ROUNDS, 0.9, "x", at_least=True),
    Target("nothing measured", None, 1),
]


def test_of_several_rounds_the_median_counts() -> None:
    assert [target.met for target in TARGETS] == [False, True, False]
    assert TARGETS[1].value == 0.95


def test_what_was_found_stands_with_its_interval_and_unit() -> None:
    assert [target.found for target in TARGETS] == ["12.5 ms", "0.95 (0.9 to 1) x", "none"]
    assert [target.goal for target in TARGETS] == ["at most 10 ms", "at least 0.9 x", "at most 1"]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.012345, "0.0123"), (12.345, "12.3"), (1234.5, "1,230"), (150.0, "150"), (0.0, "0")]
)
def test_three_digits_are_enough(value: float, shown: str) -> None:
    assert Target("", value, 1).found == shown


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_comes_back_from_its_file(target: Target) -> None:
    again = Target.from_json(json.loads(json.dumps(target.as_json())))
    assert (again.found, again.goal, again.met) == (target.found, target.goal, target.met)


def test_a_missed_goal_and_a_fault_are_said() -> None:
    screen = io.StringIO()
    Report({}, TARGETS, ("a task was lost",)).show(Console(file=screen, width=120), "sample")
    assert screen.getvalue().count("missed") == 2
    assert "a task was lost" in screen.getvalue()
