"""Every benchmark still runs, gets the answers it should, and compares equal work: `make bench-smoke`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import machine, suite
from benchmarks.machine import Others
from benchmarks.results import Result

pytestmark = pytest.mark.slow

ALONE = "peers"
"""Takes minutes even with tiny counts, as it starts five services and kills each: `make bench-smoke` runs it, too."""


CROWDED = pytest.param("ingress", marks=pytest.mark.whole_service)  # answers nobody in time beside other services


@pytest.mark.parametrize("name", [CROWDED, *(name for name in suite.MODULES if name not in (ALONE, "ingress"))])
def test_it_measures_what_it_says(name: str, tmp_path: Path) -> None:
    screen = io.StringIO()
    benchmark = suite.benchmark(name)
    assert benchmark.name == name
    plan, report = benchmark.run(Console(file=screen, width=100), smoke=True)
    assert list(report.faults) == []
    assert {target.value is None for target in report.targets} == {False}
    result = Result.of(benchmark, plan, report, machine.facts(), Others(0, 0, 0), 1)
    assert json.loads(result.write(tmp_path).read_text())["figures"]
    if report.draw:
        report.draw(tmp_path / "plot.png")
        assert (tmp_path / "plot.png").stat().st_size > 1000
