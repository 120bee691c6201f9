from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import harness, machine
from benchmarks.harness import Benchmark, Goal, Interval, Report, Result


@dataclass(frozen=True)
class Plan:
    rounds: int


def measure(plan: Plan, _: Console) -> Report:
    found = Interval.of_median([12.5] * plan.rounds)
    return Report({"wait_ms": 12.5}, [Goal.of_rounds("wait", "who waits", found, 10, "ms", at_least=False)])


SAMPLE = Benchmark("sample", "a sample", Plan(5), Plan(1), measure)


def result(smoke: bool = False, faults: tuple[str, ...] = ()) -> Result:
    found = SAMPLE.run(Console(quiet=True), smoke)
    return replace(found, report=replace(found.report, faults=list(faults)))


def test_a_result_says_what_was_done_how_and_where(tmp_path: Path) -> None:
    made = result()
    written = json.loads(made.write(tmp_path).read_text())
    assert written["plan"] == {"rounds": 5}
    assert {"cores", "cpu", "date", "python", "versions", "commit", "busy"} <= written["machine"].keys()
    assert Result.read(tmp_path / "sample.json") == made
    with pytest.raises(FileExistsError):
        made.write(tmp_path)


def test_the_machine_is_described_but_not_named(tmp_path: Path) -> None:
    described = json.dumps(machine.facts())
    assert socket.gethostname() not in described
    assert str(Path.home()) not in described.split('"')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}-\d+-cores-[a-z0-9-]+", harness.new_folder(tmp_path).name)


def test_a_run_is_published_in_place_of_the_last(tmp_path: Path) -> None:
    run, published = tmp_path / "run", tmp_path / "published"
    published.mkdir()
    made = result()
    made.write(run)
    (published / "sample.json").write_text("{}")
    (published / "other.json").write_text("{}")
    assert harness.publish(run, published) == ["sample"]
    assert Result.read(published / "sample.json") == made
    assert (published / "other.json").exists()


@pytest.mark.parametrize(
    ("unfit", "why"), [(result(smoke=True), "only tried"), (result(faults=("a task was lost",)), "a task was lost")]
)
def test_what_was_only_tried_or_went_wrong_is_not_published(tmp_path: Path, unfit: Result, why: str) -> None:
    unfit.write(tmp_path)
    with pytest.raises(ValueError, match=why):
        harness.publish(tmp_path, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_another_file_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no results"):
        harness.publish(tmp_path, tmp_path / "published")
    (tmp_path / "x.json").write_text('{"goals": []}')
    with pytest.raises(ValueError, match=r"x\.json is not a benchmark's result"):
        harness.read_all(tmp_path)


def test_a_goal_is_met_on_its_own_side_of_the_limit() -> None:
    assert Goal("wait", "all", 5, 10, "ms").met
    assert not Goal("wait", "all", 11, 10, "ms").met
    assert Goal("rate", "all", 11, 10, "/s", at_least=True).met
    assert not Goal("rate", "all", None, 10).met
    goal = Goal("rate", "all", 1234.5, 10, "/s", at_least=True, interval=(0.01234, 2000))
    assert (goal.found, goal.wanted) == ("1,230 (0.0123 to 2,000) /s", "at least 10 /s")


def test_an_interval_holds_what_was_drawn_95_times_of_100() -> None:
    chance = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        found = Interval.of_median(chance.normal(10, 2, 25).tolist())
        held += found.low <= 10 <= found.high
    assert 180 <= held <= 198
    ratio = Interval.of_ratio([2, 4, 6], [1, 2, 3])
    assert (ratio.middle, ratio.n) == (2, 3)
    assert ratio.low < 2 < ratio.high
    assert Interval.of_ratio([0, 0, 3], [1, 1, 1], np.mean).middle == 1
    with pytest.raises(ValueError, match="no values"):
        Interval.of_median([])
