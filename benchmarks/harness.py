"""What every benchmark is, what it finds, and the one format in which results are kept."""

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
"""All benchmarks, short before long. A module is imported when its benchmark is wanted: some bring torch."""
RUNS: Final = Path(__file__).parent / "out"
"""Not under version control."""
PUBLISHED: Final = Path(__file__).parent / "results"
_RESAMPLES: Final = 4000

Plan = TypeVar("Plan")
"""A frozen dataclass of counts, sizes and seconds. It is written beside the figures."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A statistic and its 95 % interval, by the percentile bootstrap (Efron 1979): values are drawn anew, with
    replacement, thousands of times. Of fewer than five values it is little more than their range."""

    n: int
    low: float
    middle: float
    high: float

    @classmethod
    def bootstrap_median(cls, values: Sequence[float]) -> Self:
        """Raises ValueError without values."""
        return cls._bootstrap(np.median, values)

    @classmethod
    def bootstrap_ratio(
        cls, over: Sequence[float], under: Sequence[float], statistic: Callable[..., Any] = np.median
    ) -> Self:
        """Of the medians of two samples. Raises ValueError when one of them is empty."""
        return cls._bootstrap(statistic, over, under)

    @classmethod
    def _bootstrap(cls, statistic: Callable[..., Any], *samples: Sequence[float]) -> Self:
        if not all(map(len, samples)):
            raise ValueError("no values")
        chance = np.random.default_rng(0)
        measured = [float(statistic(sample)) for sample in samples]
        resamples = [statistic(chance.choice(sample, (_RESAMPLES, len(sample))), axis=1) for sample in samples]
        middle = measured[0] / measured[1] if len(samples) > 1 else measured[0]
        low, high = np.quantile(resamples[0] / resamples[1] if len(samples) > 1 else resamples[0], (0.025, 0.975))
        return cls(min(map(len, samples)), min(float(low), middle), middle, max(float(high), middle))

    def as_json(self) -> dict[str, float]:
        return {"n": self.n, "low": round(self.low, 4), "median": round(self.middle, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, slots=True)
class Goal:
    """For one figure: at most `limit`, or at least, in `unit`."""

    name: str
    felt_by: str
    """Whom a miss would trouble: a goal that nobody feels is none."""
    measured: float | None
    limit: float
    unit: str = ""
    at_least: bool = False
    interval: tuple[float, float] | None = None
    """Of several rounds."""

    @classmethod
    def from_interval(
        cls, name: str, felt_by: str, interval: Interval, limit: float, unit: str, at_least: bool
    ) -> Self:
        return cls(name, felt_by, interval.middle, limit, unit, at_least, (interval.low, interval.high))

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
        """With its interval, where there is one."""
        if self.measured is None:
            return "none"
        interval = f" ({plain(self.interval[0])} to {plain(self.interval[1])})" if self.interval else ""
        return f"{plain(self.measured)}{interval} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Report:
    figures: Mapping[str, Any]
    """As JSON has it."""
    goals: Sequence[Goal] = ()
    faults: Sequence[str] = ()
    """What must never happen and did: a wrong answer, a lost task, two sides that did different work. A missed goal
    is none, as machines differ."""

    def show(self, console: Console, title: str) -> None:
        table = Table("", "felt by", "measured", "goal", "", title=title, title_justify="left")
        for goal in self.goals:
            table.add_row(goal.name, goal.felt_by, goal.result, goal.target, "met" if goal.met else "[yellow]missed")
        console.print(table)
        for fault in self.faults:
            console.print(f"[red]{fault}")


@dataclass(frozen=True, slots=True)
class Benchmark(Generic[Plan]):
    name: str
    """Of its results file, and of `python -m benchmarks run NAME`."""
    what: str
    """One sentence."""
    plan: Plan
    """As published. What is compared alternates, in five rounds or more, after one that does not count."""
    smoke: Plan
    """As little of the same as shows that every part of it works: seconds."""
    measure: Callable[[Plan, Console], Report]

    def run(self, console: Console, smoke: bool = False) -> Result:
        facts, began = machine.facts(), datetime.now(UTC)
        watch = machine.Watch()
        plan = self.smoke if smoke else self.plan
        report = self.measure(plan, console)
        report.show(console, self.name)
        facts["busy"] = watch.was_busy()
        seconds = (datetime.now(UTC) - began).total_seconds()
        values: Any = plan
        return Result(self.name, smoke, round(seconds, 1), facts, asdict(values), report)


def benchmark(name: str) -> Benchmark[Any]:
    """Raises ValueError, which names all there are."""
    if name not in MODULES:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(MODULES)}")
    return import_module(f"benchmarks.{MODULES[name]}").BENCHMARK


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark found, and how."""

    name: str
    smoke: bool
    seconds: float
    """From its start to its end, services started and stopped included."""
    machine: Mapping[str, Any]
    plan: Mapping[str, Any]
    report: Report = field(repr=False)

    def write(self, folder: Path) -> Path:
        """Raises FileExistsError when there is one already: nothing is ever written over."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        with path.open("x") as file:
            json.dump(asdict(self), file, indent=1, ensure_ascii=False)
            file.write("\n")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises ValueError for a file that is no result."""
        try:
            content = json.loads(path.read_text())
            report = content.pop("report")
            goals = [
                Goal(**each | {"interval": each["interval"] and tuple(each["interval"])}) for each in report["goals"]
            ]
            return cls(**content, report=Report(report["figures"], goals, report["faults"]))
        except (KeyError, TypeError) as problem:
            raise ValueError(f"{path.name} is not a benchmark's result: {problem}") from problem


def read_all(folder: Path = PUBLISHED) -> dict[str, Result]:
    """By name. What `benchmarks.gpu` published has a format of its own."""
    return {path.stem: Result.read(path) for path in sorted(folder.glob("*.json")) if not path.match("gpu-*.json")}


def new_folder(runs: Path = RUNS) -> Path:
    """By moment and machine. Raises FileExistsError for the second of one second."""
    folder = runs / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-{machine.slug()}"
    folder.mkdir(parents=True)
    return folder


def publish(run: Path, published: Path = PUBLISHED) -> list[str]:
    """Copies the results of `run`; what was published under the same names before goes.

    Raises ValueError, and copies nothing, when one of them has faults or was only tried.
    """
    results = read_all(run)
    if not results:
        raise ValueError(f"{run} holds no results")
    for result in results.values():
        if result.smoke:
            raise ValueError(f"{result.name} was only tried: its figures mean nothing")
        if result.report.faults:
            raise ValueError(f"{result.name} has faults: {'; '.join(result.report.faults)}")
    for result in results.values():
        (published / f"{result.name}.json").unlink(missing_ok=True)
        result.write(published)
    return list(results)


def plain(value: float) -> str:
    """Three digits that count: 0.0123, 12.3, 1,230."""
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(value) >= 1000 else f"{float(digits):g}"
