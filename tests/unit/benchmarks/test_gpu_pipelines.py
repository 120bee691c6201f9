"""The GPU check of generic pipelines: sizes of networks, and results of a run in which something fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import pipelines
from benchmarks.gpu.workbench import Workbench
from deployments.backends.diffusers import DiffusersBackend, PipelineState

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # pipelines warn of their own calls


def measure(file: Path, budget_s: float = 600.0) -> dict[str, Any]:
    bench = Workbench("cpu", file, budget_s, tiny=True)
    bench.phase = "z-image"
    with bench.part("phase"):
        pipelines.image_pipeline("z-image", bench)
    return json.loads(file.read_text())


@pytest.mark.parametrize(("name", "billions"), [("z-image", 6.15), ("qwen-image", 20.43), ("wan", 14.29)])
def test_networks_have_the_published_size(name: str, billions: float) -> None:
    network = pipelines.build(name, torch.device("meta"), tiny=False).transformer
    assert sum(each.numel() for each in network.parameters()) / 1e9 == pytest.approx(billions, abs=0.01)


def test_failed_part_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = DiffusersBackend.step

    def step_but_two(backend: DiffusersBackend, states: Sequence[PipelineState]) -> None:
        if len(states) == 2:
            raise RuntimeError("not two")
        step(backend, states)

    monkeypatch.setattr(DiffusersBackend, "step", step_but_two)
    monkeypatch.setattr(pipelines, "_compile", lambda *arguments: False)
    results = measure(tmp_path / "results.json")
    assert results["failed"] == {"z-image: step of 2 x 1024 px": "RuntimeError: not two"}
    assert results["skipped"] == {"z-image: decode of 2 x 1024 px": "no step was taken"}
    assert {"step of 4 x 1024 px", "decode of 4 x 1024 px"} <= results["phases"]["z-image"].keys()


def test_step_that_differs_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "_step_once", lambda bench, backend, states: (0.5, 1.0))
    monkeypatch.setattr(pipelines, "_compile", lambda *arguments: False)
    figures = measure(tmp_path / "results.json")["phases"]["z-image"]["step of 1 x 1024 px"]
    assert (figures["difference"], figures["passed"]) == (0.5, False)


def test_nothing_is_measured_after_the_time_limit(tmp_path: Path) -> None:
    results = measure(tmp_path / "results.json", budget_s=0.0)
    assert results["phases"]["z-image"].keys() == {"load"}
    assert set(results["skipped"].values()) == {"no time was left", "no step was taken"}
