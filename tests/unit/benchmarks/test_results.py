from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import machine, results
from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.machine import Others
from benchmarks.report import Report, Target
from benchmarks.results import Result


@dataclass(frozen=True)
class Plan:
    rounds: int


def measure(plan: Plan, _: Console) -> Report:
    return Report({"wait_ms": 12.5}, [Target("wait", Interval.of_median([12.5] * plan.rounds), 10, "ms")])


SAMPLE = Benchmark("sample", "a sample", Plan(5), Plan(1), measure)


def result(smoke: bool = False, faults: tuple[str, ...] = ()) -> Result:
    plan, report = SAMPLE.run(Console(quiet=True), smoke)
    return Result.of(SAMPLE, plan, replace(report, faults=faults), machine.facts(), Others(0, 0, 0), 1.23)


def test_a_result_says_what_was_done_how_and_where(tmp_path: Path) -> None:
    written = json.loads(result().write(tmp_path).read_text())
    assert written["command"] == "python -m benchmarks run sample"
    assert written["plan"] == {"rounds": 5}
    assert {"cores", "cpu", "date", "python", "versions", "commit"} <= written["machine"].keys()
    assert Result.read(tmp_path / "sample.json") == result()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    result().write(tmp_path)
    with pytest.raises(FileExistsError):
        result().write(tmp_path)


def test_the_machine_is_described_but_not_named() -> None:
    described = json.dumps(machine.facts())
    assert socket.gethostname() not in described
    assert str(Path.home()) not in described.split('"')


def test_a_folder_is_named_by_moment_and_machine(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}-\d+-cores-[a-z0-9-]+", results.new_folder(tmp_path).name)


@pytest.mark.parametrize(("others", "busy"), [((0.05, 0.02, 0.0), False), ((0.3, 0, 0), True), ((0, 0, 0.05), True)])
def test_a_machine_that_others_use_is_busy(others: tuple[float, float, float], busy: bool) -> None:
    assert Others(*others).busy is busy


def test_a_run_is_published_with_its_plot_in_place_of_the_last(tmp_path: Path) -> None:
    run, published = tmp_path / "run", tmp_path / "published"
    run.mkdir()
    published.mkdir()
    result().write(run)
    (run / "sample.png").write_bytes(b"plot")
    (published / "sample.json").write_text("{}")
    (published / "other.json").write_text("{}")
    assert results.publish(run, published) == ["sample"]
    assert Result.read(published / "sample.json") == result()
    assert (published / "sample.png").read_bytes() == b"plot"
    assert (published / "other.json").exists()


@pytest.mark.parametrize(
    ("unfit", "why"), [(result(smoke=True), "only tried"), (result(faults=("a task was lost",)), "a task was lost")]
)
def test_what_was_only_tried_or_went_wrong_is_not_published(tmp_path: Path, unfit: Result, why: str) -> None:
    unfit.write(tmp_path)
    with pytest.raises(ValueError, match=why):
        results.publish(tmp_path, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_an_empty_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no results"):
        results.publish(tmp_path, tmp_path / "published")


def test_another_file_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"targets": []}')
    with pytest.raises(ValueError, match=r"x\.json is not a benchmark's result"):
        results.read_all(tmp_path)
