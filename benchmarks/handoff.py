"""How soon an idle service begins with a task, and how soon whoever waits hears of its end.

Tasks of a simulated model go in one at a time, each after the last has ended. Measured, in milliseconds and by the
clock of one machine: from the client's receipt of the submission's answer to the moment the dispatcher hears that the
model has admitted the task (`start_time` of the result; below zero when work began before the answer was there), and
from the model's last event (`end_time`) to the answer of a poll that waits, and to the webhook. Waits under load are
another matter: `gen-serve bench` measures those.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from gen_serve_bench.results import Percentiles
from rich.console import Console
from rich.progress import track

from benchmarks.destination import Destination
from benchmarks.harness import Benchmark, Goal, Report
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service

SETTINGS: Final = UNLIMITED | {f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(): "simulated/20ms"}
BODY: Final = {"prompt": "a small red star", "width": 64, "height": 64, "steps": 8, "seed": 1}


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: int = 300
    warm_up: int = 20
    """Tasks before them that don't count."""
    pause_s: float = 0.05
    """Before a task, and again before its first poll, which would compete with what is measured."""


def measure(plan: Plan, console: Console) -> Report:
    destination = Destination()
    latencies: dict[str, list[float]] = {"submission": [], "start": [], "result": [], "webhook": []}
    console.print("starting a service")
    with Service(SETTINGS) as service, service.client() as client, destination.listening() as url:
        for number in track(range(plan.warm_up + plan.tasks), "handing over", console=console):
            time.sleep(plan.pause_s)
            submitted_at = time.time()
            task_id = client.submit(ENDPOINT, BODY | {"webhook_url": url})["id"]
            accepted_at = time.time()
            time.sleep(plan.pause_s)
            result = client.poll(task_id, wait=30).get("result")
            result_at = time.time()
            if result is None:
                return Report({}, faults=["a waiting poll was answered without a result"])
            if number >= plan.warm_up:
                began, ended_at = result["start_time"], result["end_time"]
                moments = (
                    accepted_at - submitted_at,
                    began - accepted_at,
                    result_at - ended_at,
                    destination.wait(task_id) - ended_at,
                )
                for values, moment in zip(latencies.values(), moments, strict=True):
                    values.append(1000 * moment)
    summary = {
        name: percentiles.as_json()
        for name, values in latencies.items()
        if (percentiles := Percentiles.from_values(values))
    }
    return Report({f"{name}_ms": percentiles for name, percentiles in summary.items()}, goals(summary))


def goals(summary: dict[str, dict[str, float]]) -> list[Goal]:
    waiting, programs = "whoever waits for an image", "programs that go on with the result"
    return [
        Goal("idle: answer to the start of work, p99", waiting, summary["start"]["p99"], 100, "ms"),
        Goal("end of a task to the answer of a waiting poll, p99", waiting, summary["result"]["p99"], 100, "ms"),
        Goal("end of a task to its webhook, p99", programs, summary["webhook"]["p99"], 1000, "ms"),
    ]


BENCHMARK = Benchmark(
    "handoff",
    "idle: from a submission to the start of work, and from its end to who waits",
    Plan(),
    Plan(tasks=3, warm_up=1),
    measure,
)
