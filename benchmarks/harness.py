"""The frame of every benchmark: its plan, its report with goals and faults, and the format of its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import machine

MODULES: Final = {
    "handoff": "handoff",
    "cost": "cost",
    "waiting": "waiting",
    "objects": "objects",
    "store": "store",
    "overload": "overload",
    "packing": "packing",
    "planner": "planner",
    "fleet": "fleet",
    "peers": "peers.comparison",
}
"""Modules by benchmark, quick ones first. They are imported on use, since some import torch."""
RUNS: Final = Path(__file__).parent / "out"
"""Folder of unpublished runs, which git ignores."""
PUBLISHED: Final = Path(__file__).parent / "results"
_RESAMPLES: Final = 4000

PlanT = TypeVar("PlanT")
"""Frozen dataclass of counts, sizes and seconds. It is stored with the figures."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A statistic and its 95 % interval by the percentile bootstrap (Efron 1979).

    With fewer than five values it is little more than their range.
    """

    n: int
    low: float
    middle: float
    high: float

    @classmethod
    def bootstrap_median(cls, values: Sequence[float]) -> Self:
        """Returns the interval of the median. Raises ValueError without values."""
        return cls._bootstrap(np.median, values)

    @classmethod
    def bootstrap_ratio(
        cls, over: Sequence[float], under: Sequence[float], statistic: Callable[..., Any] = np.median
    ) -> Self:
        """Returns the interval of the ratio of two samples' statistics. Raises ValueError when a sample is empty."""
        return cls._bootstrap(statistic, over, under)

    @classmethod
    def _bootstrap(cls, statistic: Callable[..., Any], *samples: Sequence[float]) -> Self:
        if not all(map(len, samples)):
            raise ValueError("no values")
        rng = np.random.default_rng(0)
        measured = [float(statistic(sample)) for sample in samples]
        resamples = [statistic(rng.choice(sample, (_RESAMPLES, len(sample))), axis=1) for sample in samples]
        middle = measured[0] / measured[1] if len(samples) > 1 else measured[0]
        low, high = np.quantile(resamples[0] / resamples[1] if len(samples) > 1 else resamples[0], (0.025, 0.975))
        return cls(min(map(len, samples)), min(float(low), middle), middle, max(float(high), middle))


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for one figure."""

    name: str
    felt_by: str
    """People who would notice a miss."""
    measured: float | None
    limit: float
    unit: str = ""
    at_least: bool = False
    interval: tuple[float, float] | None = None
    """95 % interval of the figure over several rounds."""
    first_set: str = ""
    """Limit as it was first set, and why it changed; empty where it never did."""

    @classmethod
    def from_interval(
        cls, name: str, felt_by: str, interval: Interval, limit: float, unit: str, at_least: bool, first_set: str = ""
    ) -> Self:
        bounds = (interval.low, interval.high)
        return cls(name, felt_by, interval.middle, limit, unit, at_least, bounds, first_set)

    @property
    def met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def target(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {plain(self.limit)} {self.unit}".strip()

    @property
    def result(self) -> str:
        if self.measured is None:
            return "none"
        interval = f" ({plain(self.interval[0])} to {plain(self.interval[1])})" if self.interval else ""
        return f"{plain(self.measured)}{interval} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Report:
    figures: Mapping[str, Any]
    """Measurements that JSON can hold."""
    goals: Sequence[Goal] = ()
    faults: Sequence[str] = ()
    """Events that must never happen: a wrong answer, a lost task, sides that did different work. A missed goal is no
    fault, as machines differ."""

    def show(self, console: Console, title: str) -> None:
        table = Table("", "felt by", "measured", "goal", "", title=title, title_justify="left")
        for goal in self.goals:
            table.add_row(goal.name, goal.felt_by, goal.result, goal.target, "met" if goal.met else "[yellow]missed")
        console.print(table)
        for fault in self.faults:
            console.print(f"[red]{fault}")


@dataclass(frozen=True, slots=True)
class Benchmark(Generic[PlanT]):
    name: str
    """Name of the results file, and of the benchmark in `python -m benchmarks run NAME`."""
    description: str
    plan: PlanT
    """Plan of published runs. Compared sides alternate in five rounds or more, after a warm-up that does not count."""
    smoke: PlanT
    """Plan that runs every part in seconds, only to show that it works."""
    measure: Callable[[PlanT, Console], Report]

    def run(self, console: Console, smoke: bool = False) -> BenchmarkResult:
        facts, started_at = machine.facts(), datetime.now(UTC)
        busy_check = machine.BusyCheck()
        plan = self.smoke if smoke else self.plan
        report = self.measure(plan, console)
        report.show(console, self.name)
        facts["busy"] = busy_check.was_busy()
        seconds = (datetime.now(UTC) - started_at).total_seconds()
        values: Any = plan
        return BenchmarkResult(self.name, smoke, round(seconds, 1), facts, asdict(values), report)


def benchmark(name: str) -> Benchmark[Any]:
    """Imports and returns the benchmark. Raises ValueError, which lists all names, for an unknown one."""
    if name not in MODULES:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(MODULES)}")
    return import_module(f"benchmarks.{MODULES[name]}").BENCHMARK


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Report of one run of a benchmark, with its plan and machine."""

    name: str
    smoke: bool
    seconds: float
    """Duration of the whole run, including the start and stop of services."""
    machine: Mapping[str, Any]
    plan: Mapping[str, Any]
    report: Report = field(repr=False)

    def write(self, folder: Path) -> Path:
        """Writes a new file. Raises FileExistsError rather than overwrite a result."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        with path.open("x") as file:
            json.dump(asdict(self), file, indent=1, ensure_ascii=False)
            file.write("\n")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a result. Raises ValueError for any other file."""
        try:
            content = json.loads(path.read_text())
            report = content.pop("report")
            goals = [
                Goal(**each | {"interval": each["interval"] and tuple(each["interval"])}) for each in report["goals"]
            ]
            return cls(**content, report=Report(report["figures"], goals, report["faults"]))
        except (KeyError, TypeError) as problem:
            raise ValueError(f"{path.name} is not a benchmark's result: {problem}") from problem


def read_all(folder: Path = PUBLISHED) -> dict[str, BenchmarkResult]:
    """Reads the results in a folder by name, except those of `benchmarks.gpu`, whose format differs."""
    paths = [path for path in sorted(folder.glob("*.json")) if not path.match("gpu-*.json")]
    return {path.stem: BenchmarkResult.read(path) for path in paths}


def new_folder(runs: Path = RUNS) -> Path:
    """Makes the folder of a run, named by time and machine. Raises FileExistsError for two runs in one second."""
    folder = runs / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-{machine.slug()}"
    folder.mkdir(parents=True)
    return folder


def publish(run: Path, published: Path = PUBLISHED) -> list[str]:
    """Replaces the published results of the same names by those of `run`. Returns the names.

    Raises ValueError, and copies nothing, when a result has faults or is of a smoke run.
    """
    results = read_all(run)
    if not results:
        raise ValueError(f"{run} holds no results")
    for result in results.values():
        if result.smoke:
            raise ValueError(f"{result.name} is of a smoke run: its figures mean nothing")
        if result.report.faults:
            raise ValueError(f"{result.name} has faults: {'; '.join(result.report.faults)}")
    for result in results.values():
        (published / f"{result.name}.json").unlink(missing_ok=True)
        result.write(published)
    return list(results)


def plain(value: float) -> str:
    """Formats a number with three significant digits: 0.0123, 12.3, 1,230."""
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(value) >= 1000 else f"{float(digits):g}"
