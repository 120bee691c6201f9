from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import machine
from benchmarks.report import Report, Target


def report(faults: tuple[str, ...] = ()) -> Report:
    targets = [
        Target("wait", 12.5, 10, "ms"),
        Target("ratio", 0.95, 0.9, "x", at_least=True),
        Target("nothing measured", None, 1),
    ]
    return Report("sample", machine.facts(), {"n": 3}, {"wait_ms": 12.5}, targets, faults)


def test_the_file_holds_figures_targets_and_the_machine(tmp_path: Path) -> None:
    path = report().write(tmp_path / "results")
    assert path.name == "sample.json"
    written = json.loads(path.read_text())
    assert list(written) == ["benchmark", "machine", "settings", "figures", "targets", "faults"]
    assert written["targets"] == [
        {"name": "wait", "measured": 12.5, "target": "≤ 10 ms", "met": False},
        {"name": "ratio", "measured": 0.95, "target": "≥ 0.9 x", "met": True},
        {"name": "nothing measured", "measured": None, "target": "≤ 1", "met": False},
    ]
    assert {"cores", "cpu", "date", "python", "versions"} <= written["machine"].keys()


def test_the_machine_is_described_but_not_named() -> None:
    described = json.dumps(machine.facts())
    assert socket.gethostname() not in described
    assert str(Path.home()) not in described.split('"')


def test_only_faults_fail() -> None:
    assert report().exit_code == 0
    assert report(("a task was lost",)).exit_code == 1


def test_a_missed_target_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    report(("a task was lost",)).show(Console(file=screen, width=120))
    assert screen.getvalue().count("missed") == 2
    assert "a task was lost" in screen.getvalue()
    assert capsys.readouterr().out == ""
