"""Every benchmark still runs, gets the answers it should, and compares equal work: `make bench-smoke`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import harness

pytestmark = pytest.mark.slow

ALONE = ("peers", "planner")
"""Take minutes even with tiny counts, as they start four and five services: `make bench-smoke` runs them, too."""


@pytest.mark.parametrize("name", [name for name in harness.MODULES if name not in ALONE])
def test_it_measures_what_it_says(name: str, tmp_path: Path) -> None:
    benchmark = harness.benchmark(name)
    assert benchmark.name == name
    result = benchmark.run(Console(file=io.StringIO(), width=100), smoke=True)
    assert list(result.report.faults) == []
    assert {goal.measured is None for goal in result.report.goals} == {False}
    assert json.loads(result.write(tmp_path).read_text())["report"]["figures"]
