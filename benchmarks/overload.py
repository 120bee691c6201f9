"""Overload: throughput, rejections and memory at twice the capacity.

The model is simulated, so that its capacity is known and the machine is not the limit: a batch of 8 takes 0.8 s, which
makes 10 images per second. An open loop first offers slightly less, then twice as much. The service should make as
many images as before, reject the surplus with 429 and not grow in memory.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from gen_serve_bench.adapters import Target
from gen_serve_bench.generator import WorkerLoad, generate
from gen_serve_bench.outcomes import Outcome
from gen_serve_bench.results import Window, summarize
from gen_serve_bench.workload import Endpoint, Load, Mix, Size
from rich.console import Console

from benchmarks.harness import Benchmark, Goal, Report
from benchmarks.service import ENDPOINT, Service

_STEP_MS, _STEPS, _BATCH = 200, 4, 8
CAPACITY: Final = _BATCH / (_STEPS * _STEP_MS / 1000)
"""Images per second."""
WAITING: Final = 40
"""Queue limit in tasks; a task in a full queue waits about four seconds."""
MIX: Final = Mix(endpoints=[Endpoint(endpoint=ENDPOINT, sizes=[Size(64, 64)], steps=[_STEPS])], prompts=["a red star"])
SETTINGS: Final = {
    "GEN_MODELS__FLUX3-KLEIN__CHECKPOINT": f"simulated/{_STEP_MS}ms",
    "GEN_MODELS__FLUX3-KLEIN__MAX_BATCH": str(_BATCH),
    "GEN_MODELS__FLUX3-KLEIN__MAX_RUNNING": str(2 * _BATCH),
    "GEN_TASKS__MAX_QUEUED": str(WAITING),
    "GEN_TASKS__MAX_ACTIVE": "1000000",
    "GEN_TASKS__REQUESTS_PER_S": "1000000",
}


@dataclass(frozen=True, slots=True)
class OverloadPlan:
    seconds: float = 40
    """Seconds of each of the two loads."""


def measure(plan: OverloadPlan, console: Console) -> Report:
    load = Load(MIX, ENDPOINT, plan.seconds)
    rounds: dict[str, dict[str, Any]] = {}
    memory: list[float] = []
    lost = 0
    console.print("starting a service")
    with Service(SETTINGS) as service:
        target = Target(base_url=service.base_url, keys={"all": service.key}, limit=60, poll_every=0.2, wait=10)
        for name, rate in (("peak", 0.95 * CAPACITY), ("overload", 2 * CAPACITY)):
            console.print(f"{name}: {rate:g} tasks per second for {plan.seconds:g} s")
            workload = load.at(rate, seed=1)
            outcomes, _ = asyncio.run(generate(target, WorkerLoad(workload.requests)))
            throughput = {"ready_per_s": _throughput(outcomes, plan.seconds)}
            rounds[name] = summarize(outcomes, Window(0, plan.seconds), workload.weights) | throughput
            lost += rounds[name]["lost"]
            memory.append(sum(service.memory().values()))
    answers = rounds["overload"]["refusals"] | rounds["overload"]["failures"]
    unexpected = [f"an answer was {answer}" for answer in answers if answer != "HTTP 429"]
    ratio = rounds["overload"]["ready_per_s"] / rounds["peak"]["ready_per_s"]
    capacity_ratio = rounds["overload"]["ready_per_s"] / CAPACITY
    return Report(
        figures=rounds | {"capacity_per_s": CAPACITY, "memory_mib": [round(value) for value in memory]},
        goals=goals(ratio, capacity_ratio, memory[1] / memory[0]),
        faults=[*([f"{lost} tasks were lost"] if lost else []), *unexpected],
    )


def goals(peak_ratio: float, capacity_ratio: float, memory: float) -> list[Goal]:
    everyone, operator = "people who wait during the overload", "operators who are called when memory runs out"
    return [
        Goal("images per second at twice the capacity / at the peak", everyone, peak_ratio, 0.95, "x", at_least=True),
        Goal(
            "images per second at twice the capacity / the capacity", everyone, capacity_ratio, 0.95, "x", at_least=True
        ),
        Goal("memory after overload / before", operator, memory, 1.1, "x"),
    ]


def _throughput(outcomes: list[Outcome], seconds: float) -> float:
    """Returns the images per second while requests came in, without those made after."""
    return sum(one.served and one.ended is not None and one.ended <= seconds for one in outcomes) / seconds


BENCHMARK = Benchmark(
    "overload",
    "images per second, rejections and memory at twice the capacity of a simulated model",
    OverloadPlan(),
    OverloadPlan(seconds=3),
    measure,
)
