"""How soon a client that waits at the server hears of its result.

Tasks of a simulated model go in one at a time; the client polls with `?wait=` right after the submission's answer, so
that it waits when the task ends. Measured: from the moment the store has the task as ended (`finished` of its record,
by Redis' clock) to the client having the whole answer, by one machine's clock; beside it, from the model's last event
(`end_time` of the result), which adds the judging of the result and its publication.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, cast

from gen_serve_bench.results import Spread
from redis import Redis
from rich.console import Console
from rich.progress import track

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service
from benchmarks.tasks import BODY

STEP_MS: Final = 20
SETTINGS: Final = UNLIMITED | {f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(): f"simulated/{STEP_MS}ms"}


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: int = 500
    warm_up: int = 20
    """Tasks before them that don't count."""
    steps: int = 3
    """Each takes STEP_MS or somewhat more: the client waits long before they are done."""


def measure(plan: Plan, console: Console) -> Report:
    from_store: list[float] = []
    from_model: list[float] = []
    console.print("starting a service")
    with Service(SETTINGS) as service, service.client() as client, Redis.from_url(service.redis_url) as redis:
        for number in track(range(plan.warm_up + plan.tasks), "waiting", console=console):
            task_id = client.submit(ENDPOINT, BODY | {"steps": plan.steps})["id"]
            result = client.poll(task_id, wait=30).get("result")
            answered = time.time()
            if result is None:
                return Report(figures={}, faults=["a waiting poll was answered without a result"])
            finished = redis.hget(f"gen:task:{task_id}", "finished")
            if number >= plan.warm_up:
                from_store.append(1000 * (answered - int(cast(bytes, finished)) / 1000))
                from_model.append(1000 * (answered - result["end_time"]))
    store, model = Spread.of(from_store), Spread.of(from_model)
    assert store is not None
    assert model is not None
    return Report(
        figures={"store_to_answer_ms": store.as_json(), "model_to_answer_ms": model.as_json()},
        targets=[Target("ended in the store to the answer of a waiting poll, p99", store.p99, 20, "ms")],
    )


BENCHMARK = Benchmark(
    "waiting", "from the end of a task to the answer of a poll that waits", Plan(), Plan(tasks=3, warm_up=1), measure
)
