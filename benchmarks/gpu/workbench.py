"""Workbench of the phases: the device, the remaining time, and the file of figures."""

from __future__ import annotations

import gc
import io
import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import torch
from PIL import Image
from torch import Tensor

from benchmarks.gpu.models import BenchModel, build
from deployments.contract.job import GenerationJob
from deployments.contract.request import ResolvedRequest
from deployments.families.conditioning import PreparedRequest
from deployments.families.state import State
from deployments.families.step import step

TOLERANCES: Final = {torch.float32: 1e-3, torch.bfloat16: 0.05}
"""Largest norm of a difference, relative to the expected value, at which two computations count as equal."""
CONTROL: Final = 3.0
"""Factor by which a wrong computation must differ more than the right one, to show that the comparison would see it."""
MIXED: Final = ((1024, 1024), (512, 512), (1280, 768), (768, 1024))
_TINY: Final = 16
"""Factor by which images of bundled checkpoints are smaller."""

Metrics: TypeAlias = dict[str, Any]
Sizes: TypeAlias = Sequence[tuple[int, int]]
"""Widths and heights in pixels."""


class Skipped(Exception):
    """A part can't be measured here; the text says why."""


class Workbench:
    def __init__(self, device: str, file: Path, budget_s: float, *, tiny: bool) -> None:
        """`tiny`: use bundled checkpoints and small images."""
        self.device, self.tiny = torch.device(device), tiny
        self.cuda = self.device.type == "cuda"
        self.counts = (1, 2) if tiny else (1, 2, 4, 8, 16)
        self.phase = ""
        self._deadline = time.monotonic() + budget_s
        self._file = file
        self._results: Metrics = {"phases": {}, "failed": {}, "skipped": {}}
        self._model: tuple[str, BenchModel] | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[Metrics]:
        """Yields a dict and records the figures put into it. An exception inside ends only this part."""
        metrics: Metrics = {}
        label, started_at = f"{self.phase}: {name}", time.monotonic()
        try:
            yield metrics
        except (Skipped, ImportError) as reason:
            self._results["skipped"][label] = str(reason)
        except Exception as error:
            traceback.print_exc()
            self._results["failed"][label] = f"{type(error).__name__}: {error}"[:500]
        self._results["phases"].setdefault(self.phase, {}).update({name: metrics} if metrics else {})
        self._file.write_text(json.dumps(self._results, indent=1))
        print(f"{label} {json.dumps(metrics)} ({time.monotonic() - started_at:.1f} s)", flush=True)

    def cost(self, call: Callable[..., object], *arguments: Any, rounds: int = 3, images: int = 0) -> dict[str, float]:
        """Measures `call(*arguments)`: milliseconds, GB of additional memory, and steps per second of `images`."""
        self.clear()
        before = torch.cuda.memory_allocated() if self.cuda else 0
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self.seconds(call, *arguments)
        metrics = {"gb": round((torch.cuda.max_memory_allocated() - before) / 1e9, 2)} if self.cuda else {}
        duration_s = median(self.seconds(call, *arguments) for _ in range(1 if self.tiny else rounds))
        return (
            {"ms": round(1e3 * duration_s, 2)}
            | ({"steps_per_s": round(images / duration_s, 2)} if images else {})
            | metrics
        )

    def seconds(self, call: Callable[..., object], *arguments: Any) -> float:
        """Times a call until the device is done. Raises Skipped after the deadline."""
        self.check_deadline()
        self.wait()
        started_at = time.perf_counter()
        call(*arguments)
        self.wait()
        return time.perf_counter() - started_at

    def check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise Skipped("no time was left")

    def needs_cuda(self) -> None:
        if not self.cuda:
            raise Skipped("needs CUDA")

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def clear(self) -> None:
        if self.cuda:
            gc.collect()
            torch.cuda.empty_cache()

    def model(self, name: str) -> BenchModel:
        """Returns a model; a new one replaces the one before."""
        if self._model is None or self._model[0] != name:
            self.forget()
            self._model = name, build(name, self.device, tiny=self.tiny, tile_above=self.pixels(2048))
        return self._model[1]

    def forget(self) -> None:
        self._model = None
        self.clear()

    def pixels(self, side: int) -> int:
        return side // _TINY if self.tiny else side

    def jobs(self, sizes: Sizes, steps: int = 4, prompt_tag: str = "") -> list[GenerationJob]:
        """Makes the same jobs at each call, except that `prompt_tag` changes their prompts."""
        jobs = []
        for number, (width, height) in enumerate(sizes):
            name, prompt = f"{prompt_tag}{number:03d}", f"image {prompt_tag}{number} of a red fox in the snow"
            size: Any = {"width": self.pixels(width), "height": self.pixels(height), "steps": steps, "seed": number}
            request = ResolvedRequest(prompt=prompt, **size, output_format="png")
            jobs.append(GenerationJob(name, 1, request, name))
        return jobs

    def states(self, model: BenchModel, sizes: Sizes, steps: int = 4, references: Sequence[int] = ()) -> list[State]:
        """Encodes jobs. `references`: number of reference images per job; none by default."""
        file = io.BytesIO()
        Image.linear_gradient("L").resize((self.pixels(1024), self.pixels(512))).convert("RGB").save(file, "png")
        requests = [
            PreparedRequest(job, (file.getvalue(),) * (references[number] if references else 0))
            for number, job in enumerate(self.jobs(sizes, steps))
        ]
        states = [state for state in model.family.encode(requests) if isinstance(state, State)]
        assert len(states) == len(requests), "a job was rejected"
        return states


def step_again(model: BenchModel, states: Sequence[State]) -> list[Tensor]:
    """Takes the first step of the states again. Returns their velocities."""
    for state in states:
        state.i = 0
    step(model.family, states)
    return [state.v for state in states if state.v is not None]


def comparison(
    dtype: torch.dtype, actual: Sequence[Tensor], expected: Sequence[Tensor], wrong: Sequence[Tensor] = ()
) -> Metrics:
    """Compares tensors with the tolerance of `dtype`. `wrong`, the result of a mistake, must differ far more."""
    difference, tolerance = _difference(actual, expected), TOLERANCES[dtype]
    metrics = {"difference": float(f"{difference:.3g}"), "tolerance": tolerance, "passed": difference <= tolerance}
    if wrong:
        metrics["control"] = float(f"{_difference(wrong, expected):.3g}")
        metrics["passed"] &= metrics["control"] > CONTROL * difference
    return metrics


def _difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Returns the largest relative norm of a difference; infinite for NaN."""
    ratios = [float((a.float() - b.float()).norm() / b.float().norm()) for a, b in zip(actual, expected, strict=True)]
    return max(ratio if math.isfinite(ratio) else math.inf for ratio in ratios)
