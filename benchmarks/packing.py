"""What packing images of any shape into one forward gains.

The bundled flux3 in this process, in float32 and with as many threads as there are cores; images of six shapes from
64 to 256 pixels, of 4, 8 or 16 steps, each with a prompt of its own, from the fetched job to a file:

* `one at a time`: in the order of arrival, as the stock pipeline does
* `static batches`: up to 8 that wait and agree in shape, steps and shapes of references go through it together
* `engine`: the step engine, up to 8 in a step. It stores its files, too

Saturated, all requests are there at once. In time are images done within five times what they take one at a time
with nobody else there, of requests that arrive at random (Poisson) at a rate given as a share of what one at a time
makes; all sides get the same requests at the same moments, and time in which a side has nothing to do is counted but
not waited for. Sides take turns, and nothing is kept between jobs. A first round doesn't count: there images of the
sides are compared.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gen_serve_bench.workload import schedule
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness import Benchmark, Goal, Interval, Report
from benchmarks.work import unlike
from deployments.contract.model import CacheSizes, ModelConfig

if TYPE_CHECKING:  # torch and diffusers take seconds to import
    from benchmarks.packing_sides import Mix, Side
    from deployments.families.flux3 import Flux3

SIDES: Final = ("one at a time", "static batches", "engine")
_RUNNING, _BATCH = 24, 8
_WITHIN: Final = 5.0
"""Times its solo latency an image may take to count."""
_FLIPS: Final = 1
"""Levels of 255 that images may be apart, as they round."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    images: int = 72
    """Of a round and a side, saturated: so many that static batches find company of their shape."""
    warm_up: int = 24
    """Of the round that does not count, in which images are compared."""
    loads: tuple[float, ...] = (0.5, 1.0, 1.3)
    """Times what one at a time makes."""
    arrivals: int = 40
    """Of a round and a side, under load."""


def measure(plan: Plan, console: Console) -> Report:
    import torch

    from benchmarks.packing_sides import Mix, Stepping, one_at_a_time, static_batches, with_inputs
    from deployments.contract.objects import ObjectStore

    torch.set_num_threads(os.cpu_count() or 1)
    with ExitStack() as stack:
        store = ObjectStore(Path(stack.enter_context(TemporaryDirectory(prefix="gen-bench-"))).as_uri())
        with_inputs(store)
        plain, engine = _load_family(), Stepping(_load_family(), store, running=_RUNNING, batch=_BATCH)
        stack.callback(engine.engine.stop)
        instances: tuple[Side, ...] = (one_at_a_time(plain, store), static_batches(plain, store), engine)
        sides: dict[str, Side] = dict(zip(SIDES, instances, strict=True))
        rounds = _Rounds(plan, sides, stack.enter_context(Progress(console=console)))
        text, references = rounds.measure_saturated(Mix()), rounds.measure_saturated(Mix(references=True))
        in_time = rounds.measure_under_load(Mix(), Interval.bootstrap_median(text["one at a time"]).middle)
    rows = {
        f"saturated, {name}, images/s": {
            side: Interval.bootstrap_median(values).middle for side, values in rates.items()
        }
        for name, rates in (("text", text), ("references", references))
    }
    rows |= {
        f"in time at load {load}": {side: sum(samples) for side, samples in good.items()}
        for load, good in in_time.items()
    }
    return Report(
        {"sides": SIDES, "rows": rows},
        goals({"text": text, "references": references}, in_time),
        rounds.faults,
    )


def goals(
    rates: Mapping[str, Mapping[str, Sequence[float]]], in_time: Mapping[float, Mapping[str, Sequence[float]]]
) -> list[Goal]:
    payer, waiting, result = "whoever pays for GPUs", "whoever waits at a busy hour", list[Goal]()
    for name, samples in rates.items():
        for side, least in (("one at a time", 1.8), ("static batches", 1.2)):
            ratio = Interval.bootstrap_ratio(samples["engine"], samples[side])
            result.append(Goal.from_interval(f"saturated, {name}: engine / {side}", payer, ratio, least, "x", True))
    for load, good in in_time.items():
        # A side that was in time with nothing counts as one image: any ratio to nothing would be as true.
        under = [max(1.0, value) for value in good["static batches"]]
        ratio = Interval.bootstrap_ratio(good["engine"], under, np.mean)
        name = f"in time at load {load}: engine / static batches"
        result.append(Goal.from_interval(name, waiting, ratio, 0.97 if load < 1 else 1.2, "x", True))
    return result


class _Rounds:
    """The parts of the benchmark. Sides take turns in going first."""

    def __init__(self, plan: Plan, sides: Mapping[str, Side], bars: Progress) -> None:
        self._plan, self._sides, self._bars = plan, sides, bars
        self._seeds = count()
        self.faults: list[str] = []

    def measure_saturated(self, mix: Mix) -> dict[str, list[float]]:
        """Images per second by side, round by round."""
        rates: dict[str, list[float]] = defaultdict(list)
        for number in self._bars.track(range(self._plan.rounds + 1), description="saturated"):
            seed, images = next(self._seeds), self._plan.images if number else self._plan.warm_up
            # A JPEG makes several levels of one.
            jobs = mix.jobs(images, seed, "jpeg" if number else "png")
            for name in _rotate(SIDES, number):
                seconds = max(self._sides[name].run(jobs, [0.0] * images))
                if number:
                    rates[name].append(images / seconds)
            if not number:
                self._compare(jobs)
        return rates

    def measure_under_load(self, mix: Mix, capacity: float) -> dict[float, dict[str, list[float]]]:
        """Images done in time, by load and side, round by round."""
        from benchmarks.packing_sides import shape_key, solo_latencies

        solo = solo_latencies(self._sides["one at a time"], mix.jobs(200, 0))
        good: dict[float, dict[str, list[float]]] = {load: defaultdict(list) for load in self._plan.loads}
        for load in self._plan.loads:
            for number in self._bars.track(range(self._plan.rounds), description=f"load {load}"):
                seed, per_s = next(self._seeds), load * capacity
                moments = schedule("poisson", per_s, self._plan.arrivals / per_s, seed)
                jobs = mix.jobs(len(moments), seed)
                for name in _rotate(SIDES, number):
                    done = self._sides[name].run(jobs, moments)
                    results = zip(jobs, moments, done, strict=True)
                    in_time = [end - came <= _WITHIN * solo[shape_key(job)] for job, came, end in results]
                    good[load][name].append(sum(in_time))
        return good

    def _compare(self, jobs: Sequence[Any]) -> None:
        """Notes images that differ between sides."""
        files = {name: [self._sides[name].file(job) for job in jobs] for name in SIDES}
        first, *others = SIDES
        for name in others:
            self.faults += [f"{first} and {name}: {what}" for what in unlike(files[first], files[name], _FLIPS)]


def _rotate(names: Sequence[str], number: int) -> list[str]:
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]


def _load_family() -> Flux3:
    from deployments import native_loading
    from deployments.families.flux3 import Flux3

    caches = CacheSizes(prompts_mb=0, references_mb=0, adapters_mb=0)
    family = native_loading.load(
        ModelConfig(checkpoint="bundled/flux3", device="cpu", dtype="float32", caches=caches)
    ).family
    assert isinstance(family, Flux3)
    return family


BENCHMARK = Benchmark(
    "packing",
    "images of many shapes at a time: one after the other, static batches, the step engine",
    Plan(),
    Plan(rounds=1, images=4, warm_up=2, loads=(1.0,), arrivals=4),
    measure,
)
