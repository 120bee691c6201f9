"""Benchmarks: goals, intervals, results and their publication, blocks of documents, and measures of processes."""

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


def test_written_result_has_the_plan_and_the_unnamed_machine(tmp_path: Path) -> None:
    outcome = result()
    document = json.loads(outcome.write(tmp_path).read_text())
    assert document["plan"] == {"rounds": 5}
    assert {"cores", "cpu", "date", "python", "versions", "commit", "busy"} <= document["machine"].keys()
    assert BenchmarkResult.read(tmp_path / "sample.json") == outcome
    assert socket.gethostname() not in json.dumps(document["machine"]), "the name of a machine is private"
    with pytest.raises(FileExistsError):
        outcome.write(tmp_path)


def test_published_run_replaces_the_last_one(tmp_path: Path) -> None:
    run, published = tmp_path / "run", tmp_path / "published"
    published.mkdir()
    outcome = result()
    outcome.write(run)
    for name in ("sample.json", "other.json"):
        (published / name).write_text("{}")
    assert harness.publish(run, published) == ["sample"]
    assert BenchmarkResult.read(published / "sample.json") == outcome
    assert (published / "other.json").exists()


@pytest.mark.parametrize(
    ("unfit", "why"),
    [(None, "no results"), (result(smoke=True), "smoke run"), (result(faults=("a task was lost",)), "a task was lost")],
    ids=["none", "smoke", "fault"],
)
def test_unfit_result_is_not_published(tmp_path: Path, unfit: BenchmarkResult | None, why: str) -> None:
    if unfit:
        unfit.write(tmp_path)
    with pytest.raises(ValueError, match=why):
        harness.publish(tmp_path, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_foreign_file_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"goals": []}')
    with pytest.raises(ValueError, match=r"x\.json is not a benchmark's result"):
        harness.read_all(tmp_path)


def test_goal_is_met_on_its_side_of_the_limit() -> None:
    assert Goal("wait", "all", 5, 10, "ms").met
    assert not Goal("wait", "all", 11, 10, "ms").met
    assert Goal("rate", "all", 11, 10, "/s", at_least=True).met
    assert not Goal("rate", "all", None, 10).met
    goal = Goal("rate", "all", 1234.5, 10, "/s", at_least=True, interval=(0.01234, 2000))
    assert (goal.result, goal.target) == ("1,230 (0.0123 to 2,000) /s", "at least 10 /s")


def test_interval_holds_the_mean_95_times_of_100() -> None:
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


@pytest.mark.parametrize("path", sorted(documents.DOCS.glob("*.md")), ids=lambda path: path.name)
def test_blocks_of_documents_have_the_published_results(path: Path) -> None:
    assert fill_blocks(path.read_text(), read_all()) == path.read_text()


def test_every_view_is_in_a_document() -> None:
    everything = "".join(path.read_text() for path in documents.DOCS.glob("*.md"))
    assert [name for name in documents.VIEWS if f"<!-- figures: {name} -->" not in everything] == []


@pytest.mark.parametrize("name", sorted(read_all()))
def test_published_result_is_whole_and_still_measured(name: str) -> None:
    published = read_all()[name]
    assert name in MODULES
    assert (published.smoke, published.report.faults) == (False, [])
    assert published.report.goals
    assert published.machine["commit"]


def test_goals_begin_with_missed_and_end_with_unmeasured_ones() -> None:
    versions = {"torch": "1", "ray": "2"}
    machine = {"cores": 2, "cpu": "", "memory_gib": 1, "python": "", "versions": versions, "commit": "abc"}
    report = Report({}, [Goal("fine", "all", 1, 2), Goal("slow", "all", 3, 2)])
    table = documents.goals({"handoff": BenchmarkResult("handoff", False, 0, machine, {}, report)})
    assert table.index("slow") < table.index("fine")
    assert all(f"`{name}`" in table.split("Not measured yet:")[1] for name in MODULES if name != "handoff")


def test_only_blocks_of_a_document_are_rewritten() -> None:
    text = "before\n<!-- figures: chaos -->\nold\n<!-- end of figures -->\nafter 12 ms\n"
    output = fill_blocks(text, {})
    assert output.startswith("before\n<!-- figures: chaos -->\n\n| fault |")
    assert "old" not in output
    assert output.endswith("|\n\n<!-- end of figures -->\nafter 12 ms\n")
    assert fill_blocks(output, {}) == output
    with pytest.raises(ValueError, match="no figures 'nonsense'"):
        fill_blocks("<!-- figures: nonsense -->\n<!-- end of figures -->", {})


def file(level: int, size: tuple[int, int] = (16, 16)) -> bytes:
    return encode_image(Image.fromarray(np.full((*size, 3), level, np.uint8)))


def test_images_are_compared_by_pixels() -> None:
    assert differing_images([file(10), file(20)], [file(10), file(20)]) == []
    assert differing_images([file(10)], [file(12)]) == ["image 0: up to 2 levels of 255 apart"]
    assert differing_images([file(10)], [file(12)], levels=2) == []
    lost = [f"image {n} is missing, or of another size" for n in range(2)]
    assert differing_images([file(10), file(10)], [b"", file(10, (16, 32))]) == lost
    assert differing_images([file(10)], []) == ["1 and 0 images"]


def test_service_is_compared_to_its_best_peer() -> None:
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


@pytest.mark.parametrize("role", ROLES)
def test_title_of_a_process_tells_its_role(role: str) -> None:
    assert {process_role(title) for title in ROLES[role]} == {role}


def test_cpu_and_memory_are_measured_by_role() -> None:
    before = cpu_by_role(os.getpid())
    busy_until = time.process_time() + 0.1
    while time.process_time() < busy_until:
        pass
    assert spent(before, cpu_by_role(os.getpid()))["other"] >= 0.05
    assert spent({"model": 3.0, "proxy": 1.0}, {"model": 1.0, "proxy": 1.5}) == {"model": 0.0, "proxy": 0.5}
    assert memory_by_role(os.getpid())["other"] > 10
