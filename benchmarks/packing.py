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
`one` makes; all sides get the same requests at the same moments, and time in which a side has nothing to do is counted
but not waited for. Sides take turns. Nothing is kept between jobs, but where that is what is measured: there a
service's usual caches are set against none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.packing_rounds import ANY, COMPARED, Plan, Rounds
from benchmarks.report import Report, Target
from deployments.contract.checkpoint import BUNDLED
from deployments.contract.model import Caches, Precision

if TYPE_CHECKING:  # torch and diffusers take seconds to import
    from benchmarks.packing_sides import Side, Stepping
    from deployments.families.flux3 import Flux3

_ADAPTER: Final = BUNDLED.parent / "adapters" / "outlined.safetensors"
_ADAPTERS: Final = 8
_GOODPUT: Final = {1.3: 3.0, 1.0: 1.5, 0.0: 0.97}
"""Goals from these loads on."""
_NOTHING: Final = Caches(prompts_mb=0, references_mb=0, adapters_mb=1024)
_RUNNING, _BATCH = 24, 8
_RATES: Final = {"float32": (1.8, 1.2), "bfloat16": (2.5, 1.4)}
"""Goals: engine / one at a time, and / static batches."""


def measure(plan: Plan, console: Console) -> Report:
    import torch

    from benchmarks.packing_sides import Mix, with_inputs
    from deployments.checkpoints import has_bfloat16
    from deployments.contract.objects import ObjectStore

    torch.set_num_threads(os.cpu_count() or 1)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="gen-bench-"))
        store = ObjectStore(Path(folder).as_uri())
        with_inputs(store, _ADAPTER.read_bytes(), _ADAPTERS)
        sides, engines = _sides(stack, store)
        # By the mean pace of all so far: the parts differ.
        columns = *Progress.get_default_columns(), TimeElapsedColumn()
        bars = stack.enter_context(Progress(*columns, console=console, speed_estimate_period=3600))
        bar = bars.add_task("warming up", total=plan.total(has_bfloat16()))

        def made(what: str, pictures: int) -> None:
            bars.update(bar, description=what, advance=pictures)

        bench = Rounds(plan, sides, engines, made)
        saturated = {
            "text": bench.saturated({**dict.fromkeys(COMPARED, Mix()), "tuned": Mix(adapters=_ADAPTERS)}),
            "references": bench.saturated(dict.fromkeys(COMPARED, Mix(references=True))),
        }
        capacity = Interval.of_median(saturated["text"]["one"]).middle
        goodput = bench.under_load(Mix(), capacity)
        repeated = bench.repeated(Mix(one_prompt=True, references=True))
        alone = bench.alone(Mix(one_prompt=True))
        tuned = saturated["text"].pop("tuned")
        rates = {"float32": saturated}
        if has_bfloat16():
            halves = Rounds(plan, *_sides_in(stack, store, "bfloat16"), made)
            # Every shape of a forward rounds in its own way there: that the same is drawn is shown in float32.
            rates["bfloat16"] = {
                name: halves.saturated(dict.fromkeys(COMPARED, Mix(references=references)), ANY)
                for name, references in (("text", False), ("references", True))
            }
            bench.faults += halves.faults
    encode = repeated["encode_ms"]
    by_keeping = Interval.of_ratio(encode["kept"], encode["not"])
    by_tuning = Interval.of_ratio(tuned, saturated["text"]["engine"])
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
            Target("saturated: share of the time inside steps", Interval.of_median(bench.shares), 0.85, "", True),
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


BENCHMARK = Benchmark(
    "packing",
    "pictures of many shapes at a time: one after the other, static batches, the step engine",
    Plan(),
    Plan(rounds=1, pictures=4, warm_up=2, kept=2, alone=1, loads=(1.0,), arrivals=4),
    measure,
)
