"""What batching gains, and whether the engine finds out.

The bundled checkpoint of every family draws square pictures in batches of 1, 2, 4 and 8, on the CPU in float32 with as
many threads as the service takes, in this process: the calls of the engine's backend in the engine's order, without
its queue, its second thread and the store. Kontext gets a reference, Fill a picture and a mask, Canny a control
picture, each of the picture's size. Measured per family, size and batch:

* a step: milliseconds of one denoising step of the batch, the median over all steps of all rounds
* denoising: pictures per second if there were nothing but such steps
* whole: pictures per second from prompts to JPEG bytes, by the median round. Pictures are finished one after the other
  and nothing runs beside it; the engine finishes some while it steps others and does better

All checkpoints are loaded at once. A round goes through all of them; for each size the batches follow each other
directly, up in one round and down in the next, so that a disturbance spoils a round and not a batch.

The *learned batch* is how many pictures of the size the engine's `StepCosts` puts together once it has seen the steps
of all sizes and rounds of the family. *Kept* is the denoising rate of such batches as a share of the best one; between
two batches that were measured, a step's time is taken to grow evenly.

Compare within a row. The networks are tiny, so what every call costs by itself weighs more, and batching gains more,
than with real weights; on a GPU all of it is different. Where two batches are within the spread of a busy machine,
which of them is best is chance, and so is what is learned: look at what is kept.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.report import Report, Target
from deployments.contract.job import GenerationJob
from deployments.engine.step_costs import StepCosts

if TYPE_CHECKING:  # torch and diffusers take seconds to import
    from deployments.families.family import Family
    from deployments.families.prepared_request import PreparedRequest

BATCHES = (1, 2, 4, 8)
STEPS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    families: tuple[str, ...] = ("flux3", "flux2klein", "flux", "kontext", "fill", "canny")
    sizes: tuple[int, ...] = (64, 128, 256, 512)
    """Pixels, width and height."""
    rounds: int = 9
    """At most."""
    seconds: float = 210
    """The rounds end after this long, in their midst too; what none has reached by then is left out."""


@dataclass(frozen=True, slots=True)
class Run:
    """One batch from prompts to files, in seconds."""

    encode: float
    steps: tuple[float, ...]
    finish: float

    @property
    def total(self) -> float:
        return self.encode + sum(self.steps) + self.finish


@dataclass(frozen=True, slots=True)
class Cell:
    """All rounds of one family and size."""

    family: str
    size: int
    tokens: int
    """Of a picture in a step."""
    rounds: list[dict[int, Run]] = field(default_factory=list)
    """By batch, one run of every batch."""

    def figures(self, learned: int) -> dict[str, Any]:
        """`learned` is the batch that the engine settles on."""
        batches = {batch: self._batch(batch) for batch in self.rounds[0]}
        rates = {batch: of_batch["denoising_pictures_per_s"] for batch, of_batch in batches.items()}
        best = max(rates, key=lambda batch: rates[batch])
        step_s = np.interp(learned, list(rates), [batch / rate for batch, rate in rates.items()])
        return {
            "family": self.family,
            "size": self.size,
            "rounds": len(self.rounds),
            "batches": {str(batch): of_batch for batch, of_batch in batches.items()},
            "best_batch": best,
            "learned_batch": learned,
            "kept_at_learned_batch": round(learned / float(step_s) / rates[best], 3),
        }

    def _batch(self, batch: int) -> dict[str, float]:
        runs = [one[batch] for one in self.rounds]
        step = median(seconds for run in runs for seconds in run.steps)
        return {
            "step_ms": round(1000 * step, 3),
            "denoising_pictures_per_s": round(batch / (step * len(runs[0].steps)), 4),
            "whole_pictures_per_s": round(batch / median(run.total for run in runs), 4),
        }


@dataclass(frozen=True, slots=True)
class Picture:
    """One in a step, as `StepCosts` knows it."""

    tokens: int
    key: None = None


def learned_batches(cells: Sequence[Cell]) -> list[int]:
    """How many pictures of each cell, all of one family, go together once the steps of all were seen."""
    costs = StepCosts(BATCHES[-1])
    for number in range(max(len(cell.rounds) for cell in cells)):
        for cell in cells:
            for batch, run in (cell.rounds[number] if number < len(cell.rounds) else {}).items():
                for seconds in run.steps:
                    costs.observe([Picture(cell.tokens)] * batch, seconds)
    return [len(costs.settled([Picture(cell.tokens)] * BATCHES[-1])) for cell in cells]


def _family(name: str) -> Family:
    from deployments import checkpoints

    return checkpoints.for_pictures(checkpoints.load(f"bundled/{name}", device="cpu", dtype="float32").family)


def measure(plan: Plan, console: Console) -> Report:
    """Loads the checkpoints, measures and prints the tables."""
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    families = {name: _family(name) for name in plan.families}
    cells = _rounds(plan, families, console)
    figures = []
    for name in plan.families:
        own = [cell for cell in cells if cell.family == name]
        figures += [cell.figures(batch) for cell, batch in zip(own, learned_batches(own), strict=True)]
        console.print(table([one for one in figures if one["family"] == name]))
    return report(figures)


def report(figures: Sequence[dict[str, Any]]) -> Report:
    kept = [one["kept_at_learned_batch"] for one in figures]
    return Report(
        figures={"batches": list(BATCHES), "steps": STEPS, "cells": list(figures)},
        targets=[
            Target("kept of the best batch's rate by the learned one", Interval.of_median(kept), 0.95, "x", True),
            Target("the same, worst cell", min(kept), 0.95, "x", True),
        ],
        draw=lambda path: draw(figures, path),
    )


def _rounds(plan: Plan, families: Mapping[str, Family], console: Console) -> list[Cell]:
    cells = [Cell(name, size, _tokens(families[name], name, size)) for name in plan.families for size in plan.sizes]
    ends = time.perf_counter() + plan.seconds
    with Progress(console=console) as bars:
        bar = bars.add_task("measuring", total=plan.rounds * len(cells))
        for number in range(plan.rounds):
            for cell in cells:
                if cells[0].rounds and time.perf_counter() > ends:
                    bars.update(bar, total=bars.tasks[bar].completed)
                    return [cell for cell in cells if cell.rounds]
                family = families[cell.family]
                if number == 0:
                    _run(family, cell, 1)  # not counted: the first of a size warms up
                order = BATCHES if number % 2 == 0 else BATCHES[::-1]
                runs = {batch: _run(family, cell, batch) for batch in order}
                cell.rounds.append({batch: runs[batch] for batch in BATCHES})
                bars.advance(bar)
    return cells


def _tokens(family: Family, name: str, size: int) -> int:
    from deployments.engine.backend import JobError

    [state] = family.encode([_request(name, size, 0)])
    if isinstance(state, JobError):
        raise state
    return state.tokens


def _run(family: Family, cell: Cell, batch: int) -> Run:
    from deployments.engine.backend import JobError
    from deployments.families.step import step
    from deployments.outputs import encode_picture

    requests = [_request(cell.family, cell.size, seed) for seed in range(batch)]
    moments = [time.perf_counter()]
    states = [state for state in family.encode(requests) if not isinstance(state, JobError)]
    moments.append(time.perf_counter())
    if len(states) < batch:
        raise RuntimeError(f"{cell.family} refused a job")
    for _ in range(STEPS):
        step(family, states)
        moments.append(time.perf_counter())
    for state in states:
        encode_picture(family.finish(state), "jpeg")
    moments.append(time.perf_counter())
    encode, *steps, finish = (after - before for before, after in pairwise(moments))
    return Run(encode, tuple(steps), finish)


def _request(family: str, size: int, seed: int) -> PreparedRequest:
    """A job with the inputs that its family is there for."""
    from deployments.families.prepared_request import PreparedRequest

    job = GenerationJob(
        id=str(seed),
        attempt=0,
        prompt="a small red star on a dark blue background",
        width=size,
        height=size,
        steps=STEPS,
        seed=seed,
        output_format="jpeg",
        output_prefix="batching",
        canny=(50, 200) if family == "canny" else None,
    )
    picture, mask = _input_pictures(size)
    inputs: dict[str, Any] = {
        "kontext": {"references": (picture,)},
        "fill": {"references": (picture,), "mask": mask},
        "canny": {"control": picture},
    }
    return PreparedRequest(job, **inputs.get(family, {}))


def _input_pictures(size: int) -> tuple[bytes, bytes]:
    """A bright square on a gradient, and a mask over the square; PNG."""
    inner = slice(size // 4, 3 * size // 4)
    picture, mask = np.zeros((size, size, 3), np.uint8), np.zeros((size, size), np.uint8)
    picture[:] = np.linspace(0, 120, size, dtype=np.uint8)[:, None]
    picture[inner, inner], mask[inner, inner] = 230, 255
    return _png(picture), _png(mask)


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def table(figures: Sequence[dict[str, Any]]) -> Table:
    """Of one family: two rows for each size."""
    rounds = f"; {min(one['rounds'] for one in figures)} rounds or more"
    shown = Table("px", "", title=f"{figures[0]['family']}, pictures/s by batch{rounds}", title_justify="left")
    for heading in (*map(str, BATCHES), "best", "learned", "kept"):
        shown.add_column(heading, justify="right")
    for one in figures:
        denoising, whole = (
            [f"{of_batch[f'{part}_pictures_per_s']:.3g}" for of_batch in one["batches"].values()]
            for part in ("denoising", "whole")
        )
        kept = f"{one['kept_at_learned_batch']:.2f}"
        shown.add_row(
            str(one["size"]), "denoising", *denoising, str(one["best_batch"]), str(one["learned_batch"]), kept
        )
        shown.add_row("", "whole", *whole, "", "", "", style="dim")
    return shown


def draw(figures: Sequence[dict[str, Any]], path: Path) -> Figure:
    """A panel per family: pictures per second of denoising over the batch, a line per size, what is learned ringed."""
    names = list(dict.fromkeys(one["family"] for one in figures))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)  # rounded up
    figure = Figure(figsize=(3.8 * columns, 3.2 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("pictures/s of denoising over batch; ringed: the batch the engine learns")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    for name, panel in zip(names, panels, strict=False):
        for one in (one for one in figures if one["family"] == name):
            batches = [int(batch) for batch in one["batches"]]
            rates = [of_batch["denoising_pictures_per_s"] for of_batch in one["batches"].values()]
            [line] = panel.plot(batches, rates, marker=".", label=f"{one['size']} px")
            learned, kept = one["learned_batch"], one["kept_at_learned_batch"] * max(rates)
            panel.plot(learned, kept, "o", markersize=11, fillstyle="none", color=line.get_color())
        panel.set(title=name, xscale="log", yscale="log", xlabel="batch", ylabel="pictures/s")
        panel.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
        panel.minorticks_off()
        panel.legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return figure


BENCHMARK = Benchmark(
    "batching",
    "pictures per second over the batch, and the batch the engine settles on",
    Plan(),
    Plan(("flux3",), (64,), rounds=1, seconds=1),
    measure,
)
