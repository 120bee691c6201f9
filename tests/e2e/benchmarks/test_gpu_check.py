"""The GPU check, run on the CPU with small checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import report
from benchmarks.gpu.__main__ import GROUPS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    out = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--out", str(out)]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.fixture(scope="module")
def gpu_report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / report.FILE).read_text())


def test_every_phase_has_results_or_a_reason(gpu_report: dict[str, Any]) -> None:
    assert gpu_report["failed"] == {}
    phases = {phase for _, phases in GROUPS.values() for phase in phases if not phase.startswith("bundled/")}
    assert phases == gpu_report["phases"].keys()
    assert [phase for phase, parts in gpu_report["phases"].items() if not parts] == ["fp8"]
    alone = ("alone against the stock pipeline", "stock pipeline, 1 x 512 px", "stock pipeline, 1 x 1024 px")
    others = {f"flux3: {part}" for part in alone}
    assert {part for part, why in gpu_report["skipped"].items() if why != "needs CUDA"} == others


def test_rows_pass_and_wrong_rows_are_found(gpu_report: dict[str, Any]) -> None:
    compared = [entry for parts in gpu_report["phases"].values() for entry in parts.values() if "passed" in entry]
    assert report.wrong(gpu_report) == []
    assert all(entry["difference"] <= entry["tolerance"] for entry in compared)
    controlled = [entry for entry in compared if "control" in entry]
    assert len(controlled) >= 6
    assert all(entry["control"] > 10 * entry["tolerance"] for entry in controlled)
    wrong = {"phases": {"flux1": {"row": {"difference": 0.2, "tolerance": 0.05, "passed": False}}}}
    assert report.wrong(wrong) == ["flux1: row"]
    assert "NOT WITHIN" in report.table(gpu_report | wrong)


def test_all_results_are_shown_and_only_gpus_published(
    folder: Path, gpu_report: dict[str, Any], tmp_path: Path
) -> None:
    table = (folder / "table.txt").read_text()
    assert table == report.table(gpu_report)
    assert all(part in table for parts in gpu_report["phases"].values() for part in parts)
    assert table.count("expected ") == len(report.EXPECTED)
    with pytest.raises(SystemExit, match="mean nothing"):
        report.publish(folder, tmp_path)
    assert report.markdown(tmp_path) == "Nothing was measured on a GPU yet."
    (tmp_path / "gpu-a-card.json").write_text(json.dumps(gpu_report))
    assert "| klein-4b: row of 2 x 1024 px |" in report.markdown(tmp_path)
