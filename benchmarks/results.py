"""The folder of a run: a JSON and a plot a benchmark. Nothing is ever written over."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.benchmark import Benchmark
from benchmarks.machine import Others
from benchmarks.report import Report, Target

RUNS: Final = Path(__file__).parent / "out"
"""Not under version control."""
PUBLISHED: Final = Path(__file__).parent / "results"
OF_GPUS: Final = "gpu-*.json"
"""Published by `benchmarks.gpu`, which has a format of its own."""


def new_folder(runs: Path = RUNS) -> Path:
    """By moment and machine. Raises FileExistsError for the second of one second."""
    folder = runs / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-{machine.slug()}"
    folder.mkdir(parents=True)
    return folder


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark found, and how."""

    name: str
    what: str
    command: str
    smoke: bool
    seconds: float
    """From its start to its end, services started and stopped included."""
    machine: dict[str, Any]
    others: dict[str, Any]
    plan: dict[str, Any]
    figures: dict[str, Any]
    targets: tuple[Target, ...]
    faults: tuple[str, ...]

    @classmethod
    def of(
        cls, benchmark: Benchmark[Any], plan: Any, report: Report, facts: dict[str, Any], others: Others, seconds: float
    ) -> Result:
        return cls(
            name=benchmark.name,
            what=benchmark.what,
            command=f"python -m benchmarks run {benchmark.name}",
            smoke=plan is benchmark.smoke,
            seconds=round(seconds, 1),
            machine=facts,
            others=others.as_json(),
            plan=asdict(plan),
            figures=report.figures,
            targets=tuple(report.targets),
            faults=tuple(report.faults),
        )

    def write(self, folder: Path) -> Path:
        """Raises FileExistsError when there is one already."""
        written = {name: getattr(self, name) for name in self.__slots__}
        written["targets"] = [target.as_json() for target in self.targets]
        path = folder / f"{self.name}.json"
        with path.open("x") as file:
            json.dump(written, file, indent=1, ensure_ascii=False)
            file.write("\n")
        return path

    @classmethod
    def read(cls, path: Path) -> Result:
        """Raises ValueError for a file that is no result."""
        written = json.loads(path.read_text())
        try:
            targets = tuple(Target.from_json(each) for each in written["targets"])
            return cls(**(written | {"targets": targets, "faults": tuple(written["faults"])}))
        except (KeyError, TypeError) as problem:
            raise ValueError(f"{path.name} is not a benchmark's result: {problem}") from problem


def read_all(folder: Path) -> dict[str, Result]:
    """By name. Other files than JSON are passed over, and what `benchmarks.gpu` published."""
    files = [file for file in sorted(folder.glob("*.json")) if not file.match(OF_GPUS)]
    return {result.name: result for result in map(Result.read, files)}


def publish(run: Path, published: Path = PUBLISHED) -> list[str]:
    """Copies the figures and plots of `run`; what was published under the same names before goes.

    Raises ValueError, and copies nothing, when one of them has faults or was only tried.
    """
    found = read_all(run)
    if not found:
        raise ValueError(f"{run} holds no results")
    for result in found.values():
        if result.smoke:
            raise ValueError(f"{result.name} was only tried: its figures mean nothing")
        if result.faults:
            raise ValueError(f"{result.name} has faults: {'; '.join(result.faults)}")
    published.mkdir(parents=True, exist_ok=True)
    for name in found:
        for suffix in (".json", ".png"):
            (published / f"{name}{suffix}").unlink(missing_ok=True)
            if (made := run / f"{name}{suffix}").exists():
                shutil.copyfile(made, published / made.name)
    return list(found)
