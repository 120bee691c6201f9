"""Every benchmark runs and measures its goals. `make bench-smoke` runs these tests."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import harness

pytestmark = pytest.mark.slow

ALONE = ("peers", "planner")
"""Benchmarks that take minutes even with tiny counts, since they start several services."""


@pytest.mark.parametrize("name", [name for name in harness.MODULES if name not in ALONE])
def test_benchmark_measures_its_goals(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.cost.DISPATCHERS", (2,))  # one service instead of three
    benchmark = harness.benchmark(name)
    assert benchmark.name == name
    result = benchmark.run(Console(file=io.StringIO(), width=100), smoke=True)
    assert list(result.report.faults) == []
    assert {goal.measured is None for goal in result.report.goals} == {False}
    assert json.loads(result.write(tmp_path).read_text())["report"]["figures"]
