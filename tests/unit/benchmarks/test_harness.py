from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from support.images import encode_image

from benchmarks import documents, harness
from benchmarks.documents import fill_blocks
from benchmarks.harness import MODULES, Benchmark, BenchmarkResult, Goal, Interval, Report, read_all
from benchmarks.peers.comparison import goals
from benchmarks.processes import cpu_by_role, memory_by_role, process_role, spent
from benchmarks.work import differing_images


@dataclass(frozen=True)
class Plan:
    rounds: int


def measure(plan: Plan, _: Console) -> Report:
    interval = Interval.bootstrap_median([12.5] * plan.rounds)
    return Report({"wait_ms": 12.5}, [Goal.from_interval("wait", "who waits", interval, 10, "ms", at_least=False)])


SAMPLE = Benchmark("sample", "a sample", Plan(5), Plan(1), measure)


def result(smoke: bool = False, faults: tuple[str, ...] = ()) -> BenchmarkResult:
    outcome = SAMPLE.run(Console(quiet=True), smoke)
    return replace(outcome, report=replace(outcome.report, faults=list(faults)))


def test_a_result_says_what_was_done_how_and_where(tmp_path: Path) -> None:
    outcome = result()
    document = json.loads(outcome.write(tmp_path).read_text())
    assert document["plan"] == {"rounds": 5}
    assert {"cores", "cpu", "date", "python", "versions", "commit", "busy"} <= document["machine"].keys()
    assert BenchmarkResult.read(tmp_path / "sample.json") == outcome
    assert socket.gethostname() not in json.dumps(document["machine"]), "it is described but not named"
    with pytest.raises(FileExistsError):
        outcome.write(tmp_path)


def test_a_run_is_published_in_place_of_the_last(tmp_path: Path) -> None:
    run, published = tmp_path / "run", tmp_path / "published"
    published.mkdir()
    outcome = result()
    outcome.write(run)
    (published / "sample.json").write_text("{}")
    (published / "other.json").write_text("{}")
    assert harness.publish(run, published) == ["sample"]
    assert BenchmarkResult.read(published / "sample.json") == outcome
    assert (published / "other.json").exists()


@pytest.mark.parametrize(
    ("unfit", "why"), [(result(smoke=True), "smoke run"), (result(faults=("a task was lost",)), "a task was lost")]
)
def test_what_was_only_tried_or_went_wrong_is_not_published(tmp_path: Path, unfit: BenchmarkResult, why: str) -> None:
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
    assert (goal.result, goal.target) == ("1,230 (0.0123 to 2,000) /s", "at least 10 /s")


def test_an_interval_holds_what_was_drawn_95_times_of_100() -> None:
    chance = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        interval = Interval.bootstrap_median(chance.normal(10, 2, 25).tolist())
        hits += interval.low <= 10 <= interval.high
    assert 180 <= hits <= 198
    ratio = Interval.bootstrap_ratio([2, 4, 6], [1, 2, 3])
    assert (ratio.middle, ratio.n) == (2, 3)
    assert ratio.low < 2 < ratio.high
    assert Interval.bootstrap_ratio([0, 0, 3], [1, 1, 1], np.mean).middle == 1
    with pytest.raises(ValueError, match="no values"):
        Interval.bootstrap_median([])


NOTHING = BenchmarkResult(
    "", False, 0, {"cores": 2, "cpu": "", "memory_gib": 1, "python": "", "versions": {}}, {}, Report({})
)


@pytest.mark.parametrize("path", sorted(documents.DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_block_says_what_was_measured(path: Path) -> None:
    assert fill_blocks(path.read_text(), read_all()) == path.read_text()


def test_every_view_stands_somewhere() -> None:
    everything = "".join(path.read_text() for path in documents.DOCS.glob("*.md"))
    assert [name for name in documents.VIEWS if f"<!-- figures: {name} -->" not in everything] == []


def test_what_is_published_is_still_measured_and_was_as_planned() -> None:
    published = read_all()
    assert set(published) <= set(MODULES)
    for name, result in published.items():
        assert not result.smoke
        assert not result.report.faults
        assert result.report.goals, name
        assert result.machine["commit"], name


def test_what_is_missed_comes_first_and_what_is_not_published_is_said() -> None:
    machine = {**NOTHING.machine, "versions": {"torch": "1", "ray": "2"}, "commit": "abc"}
    report = Report({}, [Goal("fine", "all", 1, 2), Goal("slow", "all", 3, 2)])
    table = documents.goals({"handoff": BenchmarkResult("handoff", False, 0, machine, {}, report)})
    assert table.index("slow") < table.index("fine")
    assert all(f"`{name}`" in table.split("Not measured yet:")[1] for name in MODULES if name != "handoff")


def test_a_block_is_written_anew_and_the_rest_is_left() -> None:
    text = "before\n<!-- figures: chaos -->\nold\n<!-- end of figures -->\nafter 12 ms\n"
    output = fill_blocks(text, {})
    assert output.startswith("before\n<!-- figures: chaos -->\n\n| fault |")
    assert output.endswith("|\n\n<!-- end of figures -->\nafter 12 ms\n")
    assert "old" not in output
    assert fill_blocks(output, {}) == output
    with pytest.raises(ValueError, match="no figures 'nonsense'"):
        fill_blocks("<!-- figures: nonsense -->\n<!-- end of figures -->", {})


def file(level: int, size: tuple[int, int] = (16, 16)) -> bytes:
    return encode_image(Image.fromarray(np.full((*size, 3), level, np.uint8)))


def test_images_are_alike_pixel_by_pixel_but_for_roundings() -> None:
    assert differing_images([file(10), file(20)], [file(10), file(20)]) == []
    assert differing_images([file(10)], [file(12)]) == ["image 0: up to 2 levels of 255 apart"]
    assert differing_images([file(10)], [file(12)], levels=2) == []
    lost = [f"image {n} is missing, or of another size" for n in range(2)]
    assert differing_images([file(10), file(10)], [b"", file(10, (16, 32))]) == lost
    assert differing_images([file(10)], []) == ["1 and 0 images"]


def test_the_service_is_held_against_the_best_of_the_others() -> None:
    rows = {
        "images/s, mixed shapes": {"loop": 8.0, "celery": 10.0, "gen-serve": 12.0},
        "lost by kill -9 of the model, %": {"celery": 0.0, "gen-serve": 1.0},
    }
    faster, lost = goals(rows)
    assert (faster.measured, faster.met, lost.met) == (1.2, True, False)


ROLES = {
    "ingress": ["ray::ServeReplica:gen:Ingress   ", "ray::ServeReplica:gen:Ingress.perform_graceful_shutdown"],
    "dispatcher": ["ray::ServeReplica:gen:Dispatcher"],
    "model": ["ray::ServeReplica:gen:flux3-klein", "ray::ServeReplica:gen:flux-2.5"],
    "moderator": ["ray::ServeReplica:gen:Moderator"],
    "proxy": ["ray::ProxyActor", "ray::HAProxyManager", "/somewhere/bin/haproxy -db -f file"],
    "controller": ["ray::ServeController.listen_for_change"],
    "redis": ["/somewhere/valkey-server 127.0.0.1:1"],
    "other": ["python gen-serve up", ""],
}


def test_processes_are_known_by_their_titles_and_measured_by_role() -> None:
    assert {role: [process_role(title) for title in titles] for role, titles in ROLES.items()} == {
        role: [role] * len(titles) for role, titles in ROLES.items()
    }
    before = cpu_by_role(os.getpid())
    busy_until = time.process_time() + 0.1
    while time.process_time() < busy_until:
        pass
    assert spent(before, cpu_by_role(os.getpid()))["other"] >= 0.05
    assert spent({"model": 3.0, "proxy": 1.0}, {"model": 1.0, "proxy": 1.5}) == {"model": 0.0, "proxy": 0.5}
    assert memory_by_role(os.getpid())["other"] > 10
