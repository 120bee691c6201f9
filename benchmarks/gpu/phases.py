"""Phases of the GPU check by name. One process measures some of them, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.gpu import engine, kernels, pipelines, steps
from benchmarks.gpu.models import load
from benchmarks.gpu.workbench import Workbench


def run(names: list[str], device: str, file: Path, budget_s: float, *, tiny: bool) -> None:
    """Runs phases. A name of no phase is a checkpoint's."""
    bench = Workbench(device, file, budget_s, tiny=tiny)
    for bench.phase in names:
        with bench.part("phase"):
            PHASES.get(bench.phase, _checkpoint)(bench)


def _images(name: str, bench: Workbench) -> None:
    model, complete = bench.model(name), name == "klein-4b"
    steps.correctness(bench, model)
    if complete:
        steps.attentions(bench, model)
    steps.costs(bench, model, bench.counts if complete else sorted({1, bench.counts[-2]}))


def _checkpoint(bench: Workbench) -> None:
    started_at = time.perf_counter()
    model, loaded_model = load(bench.phase, bench.device, bench.pixels(2048))
    with bench.part("load") as metrics:
        metrics |= {"s": round(time.perf_counter() - started_at, 1), **loaded_model.setup}
    steps.correctness(bench, model)
    if not bench.phase.startswith("bundled/"):  # bundled checkpoints are too small to be worth timing
        steps.attentions(bench, model)
        steps.costs(bench, model, bench.counts)
        engine.engine(bench, model)


PHASES: Final[Mapping[str, Callable[[Workbench], None]]] = {
    "machine": kernels.machine,
    "kernels": kernels.kernels,
    "z-image": partial(pipelines.image_pipeline, "z-image"),
    "qwen-image": partial(pipelines.image_pipeline, "qwen-image"),
    "wan": pipelines.video_pipeline,
    "klein-4b": partial(_images, "klein-4b"),
    "engine": lambda bench: engine.engine(bench, bench.model("klein-4b")),
    "adapters": lambda bench: steps.adapters(bench, bench.model("klein-4b")),
    "compiled": lambda bench: steps.compilation(bench, bench.model("klein-4b")),
    "fp8": kernels.fp8,
    "loading": engine.loading,
    "flux1": partial(_images, "flux1"),
    "flux3": partial(_images, "flux3"),
    "ltx2": steps.video,
}
