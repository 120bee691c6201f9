"""What packing pictures of any shape into one forward gains.

The bundled flux3 in this process, in float32 and, saturated and where the processor has it, in bfloat16, with as many
threads as the service takes; pictures of six shapes from 64 to 256 pixels, of 4, 8 or 16 steps, each with a prompt of
its own, from the fetched job to JPEG bytes:

* `one`: one at a time, in the order of arrival, as the stock pipeline does
* `static`: up to 8 that wait and agree in shape, steps and shapes of references go through it together
* `engine`: the step engine, up to 8 in a step. It stores its files, too
* `stock`: the stock diffusers pipeline, in a loop; against it the engine is given one job at a time

Saturated, all requests are there at once. Goodput is the number of pictures done within five times what they take
`one` at a time with nobody else there, of requests that arrive at random (Poisson) at a rate given as a share of what
`one` makes; all sides get the same requests at the same moments. Sides take turns. Nothing is kept between jobs, but
where that is what is measured: there a service's usual caches are set against none.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import Progress

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from benchmarks.work import unlike
from deployments.contract import counts
from deployments.contract.checkpoint import BUNDLED
from deployments.contract.model import Caches, Precision
from serve_app.load.arrivals import schedule
from serve_app.load.interval import Interval

if TYPE_CHECKING:  # torch and diffusers take seconds to import
    from benchmarks.packing_sides import Mix, Side, Stepping
    from deployments.families.flux3 import Flux3

_ADAPTER: Final = BUNDLED.parent / "adapters" / "outlined.safetensors"
_ADAPTERS: Final = 8
_WITHIN: Final = 5.0
"""Times its solo latency a picture may take to count."""
_GOODPUT: Final = {1.3: 3.0, 1.0: 1.5, 0.0: 0.97}
"""Goals from these loads on."""
_NOTHING: Final = Caches(prompts_mb=0, references_mb=0, adapters_mb=1024)
_RUNNING, _BATCH = 24, 8
_ROUNDINGS: Final = 4
"""Levels of 255 that two files may be apart whose pictures differ by one: what JPEG makes of it."""
_ANY: Final = 255
"""In bfloat16 every shape of a forward rounds in its own way: that the same is drawn is shown in float32."""
_RATES: Final = {"float32": (1.8, 1.2), "bfloat16": (2.5, 1.4)}
"""Goals: engine / one at a time, and / static batches."""
_COMPARED: Final = ("one", "static", "engine")


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    """That count; one more warms up."""
    pictures: int = 72
    """Of a round and a side, saturated."""
    loads: tuple[float, ...] = (0.5, 1.0, 1.3)
    """Times what one at a time makes."""
    arrivals: int = 90
    """Of a round and a side, under load."""


def measure(plan: Plan, console: Console) -> Report:
    import torch

    from benchmarks.packing_sides import Mix, with_inputs
    from deployments.checkpoints import has_bfloat16
    from deployments.contract.objects import ObjectStore

    mixes = {"text": Mix(), "references": Mix(references=True)}

    torch.set_num_threads(os.cpu_count() or 1)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="gen-bench-"))
        store = ObjectStore(Path(folder).as_uri())
        with_inputs(store, _ADAPTER.read_bytes(), _ADAPTERS)
        sides, engines = _sides(stack, store)
        bench = _Bench(plan, sides, engines, console)
        saturated = {name: bench.saturated(dict.fromkeys(_COMPARED, mix)) for name, mix in mixes.items()}
        shares = list(bench.shares)
        capacity = Interval.of_median(saturated["text"]["one"]).middle
        goodput = {load: bench.under_load(Mix(), load, capacity) for load in plan.loads}
        tuned = bench.saturated({"engine": Mix(), "tuned": Mix(adapters=_ADAPTERS)})
        repeated = bench.repeated(Mix(one_prompt=True, references=True))
        alone = bench.alone(Mix(one_prompt=True))
        rates = {"float32": saturated}
        if has_bfloat16():
            halves = _Bench(plan, *_sides_in(stack, store, "bfloat16"), console)
            rates["bfloat16"] = {
                name: halves.saturated(dict.fromkeys(_COMPARED, mix), _ANY) for name, mix in mixes.items()
            }
            bench.faults += halves.faults
    encode = repeated["encode_ms"]
    by_keeping = Interval.of_ratio(encode["kept"], encode["not"])
    by_tuning = Interval.of_ratio(tuned["tuned"], tuned["engine"])
    by_stock = Interval.of_ratio(alone["engine"], alone["stock"])
    return Report(
        figures={
            "saturated": {
                dtype: {
                    name: {side: Interval.of_median(values).as_json() for side, values in of_sides.items()}
                    for name, of_sides in of_mixes.items()
                }
                for dtype, of_mixes in rates.items()
            },
            "goodput": {str(load): {side: sum(done) for side, done in good.items()} for load, good in goodput.items()},
            "repeated": {
                "encode_ms": {name: Interval.of_median(values).as_json() for name, values in encode.items()},
                "hit_rate": repeated["hit_rate"],
            },
        },
        targets=[
            Target("alone: engine / stock pipeline", by_stock, 0.97, "x", True),
            *(
                target
                for dtype, of_mixes in rates.items()
                for name, of_sides in of_mixes.items()
                for target in _of_rates(dtype, name, of_sides)
            ),
            Target("saturated: share of the time inside steps", Interval.of_median(shares), 0.85, "", True),
            *(_of_goodput(load, good) for load, good in goodput.items()),
            Target(f"saturated: {_ADAPTERS} tuned models / none", by_tuning, 0.85, "x", True),
            Target("repeated words and pictures: encoding, kept / not", by_keeping, 0.2, "x"),
        ],
        faults=bench.faults,
    )


def _of_rates(dtype: str, name: str, rates: Mapping[str, Sequence[float]]) -> list[Target]:
    ratios = {side: Interval.of_ratio(rates["engine"], rates[side]) for side in ("one", "static")}
    by_one, by_static = _RATES[dtype]
    return [
        Target(f"saturated, {name}, {dtype}: engine / one at a time", ratios["one"], by_one, "x", True),
        Target(f"saturated, {name}, {dtype}: engine / static batches", ratios["static"], by_static, "x", True),
    ]


def _of_goodput(load: float, good: Mapping[str, Sequence[float]]) -> Target:
    """Against static batches where there is too much to do; where there is not, against the better of the two."""
    under = "one" if load < 1 and sum(good["one"]) > sum(good["static"]) else "static"
    # A side that was in time with nothing counts as one picture: any ratio to nothing would be as true.
    ratio = Interval.of_mean_ratio(good["engine"], [max(1.0, value) for value in good[under]])
    goal = next(goal for least, goal in _GOODPUT.items() if load >= least)
    return Target(f"goodput at load {load}: engine / {under}", ratio, goal, "x", True)


def _sides(stack: ExitStack, store: Any) -> tuple[dict[str, Side], dict[str, Stepping]]:
    import torch

    from benchmarks.packing_sides import Stepping, stock_pipeline

    sides, engines = _sides_in(stack, store, "float32")
    engines["keeping"] = Stepping(_loaded("float32", Caches()), store, running=_RUNNING, batch=_BATCH)
    stack.callback(engines["keeping"].engine.stop)
    sides |= {"stock": stock_pipeline(torch.get_num_threads()), "tuned": sides["engine"], **engines}
    return sides, engines


def _sides_in(stack: ExitStack, store: Any, dtype: Precision) -> tuple[dict[str, Side], dict[str, Stepping]]:
    """Those that keep nothing and are compared in every precision."""
    from benchmarks.packing_sides import Stepping, one_at_a_time, static_batches

    plain = _loaded(dtype, _NOTHING)
    engine = Stepping(_loaded(dtype, _NOTHING), store, running=_RUNNING, batch=_BATCH)
    stack.callback(engine.engine.stop)
    sides: dict[str, Side] = {"one": one_at_a_time(plain, store), "static": static_batches(plain, store)}
    return {**sides, "engine": engine}, {"engine": engine}


def _loaded(dtype: Precision, caches: Caches) -> Flux3:
    from deployments import checkpoints
    from deployments.families.flux3 import Flux3

    family = checkpoints.load("bundled/flux3", device="cpu", dtype=dtype, caches=caches).family
    assert isinstance(family, Flux3)
    return family


class _Bench:
    def __init__(
        self, plan: Plan, sides: Mapping[str, Side], engines: Mapping[str, Stepping], console: Console
    ) -> None:
        self._plan = plan
        self._sides = sides
        self._engines = engines
        self._console = console
        self._seeds = count()
        self.faults: list[str] = []
        self.shares: list[float] = []
        """Of the time of saturated rounds that the engine spent inside steps."""

    def saturated(self, mixes: Mapping[str, Mix], levels: int = _ROUNDINGS) -> dict[str, list[float]]:
        """Pictures per second by side, round by round. Jobs of a round differ by what their mixes do alone; pictures of
        sides that have the same may differ by so many `levels`."""
        rates: dict[str, list[float]] = defaultdict(list)
        alike = [name for name, mix in mixes.items() if mix == mixes["engine"]]
        with Progress(console=self._console) as bars:
            bar = bars.add_task("saturated", total=(self._plan.rounds + 1) * len(mixes))
            for number in range(self._plan.rounds + 1):
                seed = next(self._seeds)
                for name in _turned(list(mixes), number):
                    jobs, before = mixes[name].jobs(self._plan.pictures, seed), self._spent("engine")
                    seconds = max(self._sides[name].run(jobs, [0.0] * len(jobs)))
                    if number:
                        rates[name].append(len(jobs) / seconds)
                        if name == "engine":
                            self.shares.append((self._spent("engine") - before) / seconds)
                    bars.advance(bar)
                if len(alike) > 1:
                    self._compare(mixes["engine"].jobs(self._plan.pictures, seed), alike, levels)
        return rates

    def alone(self, mix: Mix) -> dict[str, list[float]]:
        """Pictures per second, round by round, of the engine that gets one job at a time, and of the stock pipeline."""
        rates: dict[str, list[float]] = defaultdict(list)
        names = ("engine", "stock")
        for number in range(self._plan.rounds + 1):
            jobs = mix.jobs(max(1, self._plan.pictures // 4), next(self._seeds))
            for name in _turned(names, number):
                seconds = sum(self._sides[name].run([job], [0.0])[0] for job in jobs)
                if number:
                    rates[name].append(len(jobs) / seconds)
            self._compare(jobs, names, 0)
        return rates

    def _compare(self, jobs: Sequence[Any], names: Sequence[str], levels: int) -> None:
        """Notes pictures that are further apart than that between sides."""
        files = {name: [self._sides[name].file(job) for job in jobs] for name in names}
        first, *others = names
        for name in others:
            self.faults += [f"{first} and {name}: {what}" for what in unlike(files[first], files[name], levels)]

    def under_load(self, mix: Mix, load: float, capacity: float) -> dict[str, list[float]]:
        """Pictures done in time, by side, round by round."""
        from benchmarks.packing_sides import alone, shape_of

        names = _COMPARED
        good: dict[str, list[float]] = defaultdict(list)
        solo = alone(self._sides["one"], mix.jobs(200, 0))
        with Progress(console=self._console) as bars:
            bar = bars.add_task(f"load {load}", total=self._plan.rounds * len(names))
            for number in range(self._plan.rounds):
                seed = next(self._seeds)
                moments = schedule("poisson", load * capacity, self._plan.arrivals / (load * capacity), seed)
                jobs = mix.jobs(len(moments), seed)
                for name in _turned(names, number):
                    done = self._sides[name].run(jobs, moments)
                    in_time = [
                        ended - came <= _WITHIN * solo[shape_of(job)]
                        for job, came, ended in zip(jobs, moments, done, strict=True)
                    ]
                    good[name].append(sum(in_time))
                    bars.advance(bar)
        return good

    def repeated(self, mix: Mix) -> dict[str, Any]:
        """Milliseconds of encoding a picture, round by round, by whether anything is kept; and how much of what was
        looked up was."""
        spent: dict[str, list[float]] = {"engine": [], "keeping": []}
        found: Counter[str] = Counter()
        for number in range(self._plan.rounds + 1):
            jobs = mix.jobs(self._plan.pictures, next(self._seeds))
            for name in _turned(list(spent), number):
                engine = self._engines[name].engine
                before = engine.counts
                self._engines[name].run(jobs, [0.0] * len(jobs))
                grown = {key: value - before.get(key, 0) for key, value in engine.counts.items()}
                if number:  # in the first round all of it is new
                    spent[name].append(1000 * grown[counts.seconds("encode")] / len(jobs))
                    if name == "keeping":
                        found.update({key: int(value) for key, value in grown.items()})
        hits = {cache: found[counts.hits(cache)] for cache in ("prompts", "references")}
        looked_up = {cache: hits[cache] + found[counts.misses(cache)] for cache in hits}
        return {
            "encode_ms": {"not": spent["engine"], "kept": spent["keeping"]},
            "hit_rate": {cache: round(hits[cache] / max(looked_up[cache], 1), 4) for cache in hits},
        }

    def _spent(self, name: str) -> float:
        return self._engines[name].engine.counts.get(counts.seconds("steps"), 0.0)


def _turned(names: Sequence[str], number: int) -> list[str]:
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]


BENCHMARK = Benchmark(
    "packing",
    "pictures of many shapes at a time: one after the other, static batches, the step engine",
    Plan(),
    Plan(rounds=1, pictures=4, loads=(1.0,), arrivals=4),
    measure,
)
