"""What a task costs beside the model: CPU of every process of the service, when the model takes no time.

The whole path is on: accounts, credits, judges of prompts and of results, a webhook to a receiver that takes it. The
model is simulated, a step of a millisecond; it still writes a picture of its own. A closed loop of clients submits and
waits at the server; clients, receiver and their share of the machine are not counted. CPU is user and system time by
role of the process, divided by the tasks that came back Ready, with what a resting service uses anyway taken off.
"""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.processes import Role, spent
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service
from benchmarks.webhooks import Receiver, receiving

SETTINGS: Final = UNLIMITED | {
    f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(): "simulated/1ms",
}
BODY: Final = {"prompt": "a red star", "width": 64, "height": 64, "steps": 1, "seed": 1}


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 7
    """That count; one more warms up."""
    tasks: int = 300
    """Of a round."""
    clients: int = 8
    rest_s: float = 5.0
    """Without a task, to see what a resting service uses."""


def measure(plan: Plan, console: Console) -> Report:
    receiver = Receiver()
    used: dict[Role, list[float]] = defaultdict(list)
    rates: list[float] = []
    console.print("starting a service")
    with Service(SETTINGS) as service, receiving(receiver) as url:
        time.sleep(plan.rest_s)
        before = service.cpu()
        time.sleep(plan.rest_s)
        resting = {role: cpu / plan.rest_s for role, cpu in spent(before, service.cpu()).items()}
        for number in track(range(plan.rounds + 1), "measuring", console=console):
            before, began = service.cpu(), time.monotonic()
            ids = _carried(service, url, plan)
            for task_id in ids:
                receiver.wait(task_id)
            seconds = time.monotonic() - began
            if number:
                rates.append(len(ids) / seconds)
                for role, cpu in spent(before, service.cpu()).items():
                    used[role].append(1000 * (cpu - resting.get(role, 0) * seconds) / len(ids))
    by_role: dict[Role, Interval] = {role: Interval.of_median(values) for role, values in used.items()}
    whole = Interval.of_median([sum(values) for values in zip(*used.values(), strict=True)])
    console.print(_table(by_role))
    return Report(
        figures={
            "cpu_ms_per_task": whole.as_json(),
            "cpu_ms_per_task_by_role": {role: interval.as_json() for role, interval in by_role.items()},
            "resting_share_of_a_core": {role: round(share, 4) for role, share in resting.items()},
            "tasks_per_s": Interval.of_median(rates).as_json(),
        },
        targets=[Target("CPU of a whole task beside the model", whole, 3, "ms")],
    )


def _carried(service: Service, url: str, plan: Plan) -> list[str]:
    """The ids of tasks that came back Ready; raises for any that did not."""

    def client(count: int) -> list[str]:
        with service.client() as http:
            return [
                http.wait(http.submit(ENDPOINT, BODY | {"webhook_url": url})["id"]).task["id"] for _ in range(count)
            ]

    shares = [len(range(number, plan.tasks, plan.clients)) for number in range(plan.clients)]
    with ThreadPoolExecutor(plan.clients) as pool:
        return [task_id for ids in pool.map(client, shares) for task_id in ids]


def _table(by_role: dict[Role, Interval]) -> Table:
    table = Table("role", "CPU ms per task", title="tasks", title_justify="left")
    for role, interval in sorted(by_role.items(), key=lambda each: -each[1].middle):
        table.add_row(role, f"{interval.middle:.2f}")
    return table


BENCHMARK = Benchmark(
    "tasks",
    "CPU of a whole task beside the model, by process",
    Plan(),
    Plan(rounds=1, tasks=4, clients=2, rest_s=0.5),
    measure,
)
