"""How soon an idle service begins to work on a task.

Tasks of one small step go in one at a time, each after the last has ended and a pause. Measured, in milliseconds: from
the moment the client has the submission's answer (its own clock) to the moment the dispatcher hears that the model has
admitted the task (`start_time` of the result). Both are the clock of one machine, so the difference is meaningful; it
is rounded to a millisecond, and it is below zero when work began before the answer had reached the client. On its way
lie the wake-up by Redis, the lease, the call of the model, its encoding of the prompt where that comes before
admission, and its first event. It says nothing about waits under load: `gen-serve bench` does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from gen_serve_bench.results import Spread
from rich.console import Console
from rich.progress import track

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, UNLIMITED, Service

BODY: Final = {"prompt": "a small red star", "width": 64, "height": 64, "steps": 1, "seed": 1}


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: int = 300
    warm_up: int = 20
    """Tasks before them that don't count."""
    pause_s: float = 0.05
    """Before a task, and again before its first poll, which would compete with what is measured."""


def measure(plan: Plan, console: Console) -> Report:
    handed_over: list[float] = []
    submitted: list[float] = []
    console.print("starting a service")
    with Service(UNLIMITED) as service, service.client() as client:
        for number in track(range(plan.warm_up + plan.tasks), "handing over", console=console):
            time.sleep(plan.pause_s)
            sent = time.time()
            task_id = client.submit(ENDPOINT, BODY)["id"]
            answered = time.time()
            time.sleep(plan.pause_s)
            result = client.wait(task_id)
            if number >= plan.warm_up:
                submitted.append(1000 * (answered - sent))
                handed_over.append(1000 * (result.facts["start_time"] - answered))
    spread, submission = Spread.of(handed_over), Spread.of(submitted)
    assert spread is not None
    assert submission is not None
    return Report(
        figures={"handoff_ms": spread.as_json(), "submission_ms": submission.as_json()},
        targets=[
            Target("hand-off, p50", spread.p50, 4, "ms"),
            Target("hand-off, p99", spread.p99, 10, "ms"),
        ],
    )


BENCHMARK = Benchmark(
    "handoff",
    "idle, from a submission's answer to the start of work",
    Plan(),
    Plan(tasks=3, warm_up=1),
    measure,
)
