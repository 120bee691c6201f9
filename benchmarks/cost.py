"""What the service takes beside the models: at start, at rest, for a submission, a poll and a whole task.

The model is simulated, a step of a millisecond. CPU is user and system time of the service's processes, the client and
Redis apart where a single request is told; what a resting service uses is taken off. Submissions and polls go one
after the other. Whole tasks have everything on: accounts, credits, moderation, and a webhook to
a destination that takes it; some clients submit and wait at the server. Memory is the proportional set size of all
processes, Redis and Ray included.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from benchmarks.destination import Destination
from benchmarks.harness import Benchmark, Goal, Interval, Report
from benchmarks.processes import Role, spent
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service

SETTINGS: Final = UNLIMITED | {f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(): "simulated/1ms"}
BODY: Final = {"prompt": "a red star", "width": 64, "height": 64, "steps": 1, "seed": 1}


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 7
    """That count; one more warms up."""
    tasks: int = 300
    """Of a round; also how many submissions and polls are measured together."""
    clients: int = 8
    rest_s: float = 10.0
    """Without a task, to see what a resting service uses."""


def measure(plan: Plan, console: Console) -> Report:
    destination, used = Destination(), defaultdict[str, list[float]](list)
    by_role, ids = defaultdict[Role, list[float]](list), list[str]()
    console.print("starting a service")
    with Service(SETTINGS) as service, destination.listening() as url:
        time.sleep(plan.rest_s)
        resting = _cpu(service, lambda: time.sleep(plan.rest_s), {}, plan.rest_s)
        memory = sum(service.memory().values()) / 1024
        for number in range(plan.rounds + 1):
            submissions = _cpu(service, lambda: _submit(service, ids, plan.tasks), resting, plan.tasks)
            with service.client() as client:
                while ids:  # what is measured next is not to have their work in it
                    client.wait(ids.pop())
            polls = _cpu(service, lambda: _poll(service, plan.tasks), resting, plan.tasks)
            whole = _cpu(service, lambda: _carry(service, destination, url, plan), resting, plan.tasks)
            console.print(f"round {number} of {plan.rounds}" if number else "warmed up")
            if number:
                for name, of in (("submit", submissions), ("poll", polls)):
                    used[name].append(1000 * (of.get("ingress", 0) + of.get("proxy", 0)))
                used["task"].append(1000 * sum(whole.values()))
                for role, seconds in whole.items():
                    by_role[role].append(1000 * seconds)
    found = {name: Interval.of_median(values) for name, values in used.items()}
    figures = {
        "ready_s": round(service.ready_s, 2),
        "memory_gib": round(memory, 3),
        "rest_cores": round(sum(resting.values()), 4),
        "submit_cpu_ms": round(found["submit"].middle, 3),
        "poll_cpu_ms": round(found["poll"].middle, 3),
        "cpu_ms_per_task": round(found["task"].middle, 3),
        "cpu_ms_per_task_by_role": {role: round(Interval.of_median(of).middle, 3) for role, of in by_role.items()},
    }
    return Report(figures, goals(figures))


def goals(figures: dict[str, Any]) -> list[Goal]:
    cores, small = "whoever pays for cores: a task takes a GPU seconds", "whoever tries it on a laptop"
    return [
        Goal("from start to ready", "whoever starts it", figures["ready_s"], 30, "s"),
        Goal("memory at rest", small, figures["memory_gib"], 2, "GiB"),
        Goal("CPU at rest", small, figures["rest_cores"], 0.25, "of a core"),
        Goal("CPU of a submission", cores, figures["submit_cpu_ms"], 5, "ms"),
        Goal("CPU of a poll", cores, figures["poll_cpu_ms"], 2, "ms"),
        Goal("CPU of a whole task beside the model", cores, figures["cpu_ms_per_task"], 50, "ms"),
    ]


def _cpu(service: Service, work: Callable[[], object], resting: dict[Role, float], per: float) -> dict[Role, float]:
    """CPU seconds by role, for each of `per`."""
    before, began = service.cpu(), time.monotonic()
    work()
    seconds = time.monotonic() - began
    used = spent(before, service.cpu())
    return {role: (cpu - resting.get(role, 0) * seconds) / per for role, cpu in used.items()}


def _submit(service: Service, ids: list[str], count: int) -> None:
    with service.client() as client:
        ids.extend(client.submit(ENDPOINT, BODY)["id"] for _ in range(count))


def _poll(service: Service, count: int) -> None:
    """Of a task that has ended."""
    with service.client() as client:
        task_id = client.wait(client.submit(ENDPOINT, BODY)["id"]).task["id"]
        for _ in range(count):
            client.poll(task_id)


def _carry(service: Service, destination: Destination, url: str, plan: Plan) -> None:
    """Whole tasks to their webhooks. Raises for any that did not come back Ready."""

    def work(count: int) -> None:
        with service.client() as client:
            for _ in range(count):
                task_id = client.submit(ENDPOINT, BODY | {"webhook_url": url})["id"]
                client.wait(task_id)
                destination.wait(task_id)

    shares = [len(range(number, plan.tasks, plan.clients)) for number in range(plan.clients)]
    with ThreadPoolExecutor(plan.clients) as pool:
        list(pool.map(work, shares))


BENCHMARK = Benchmark(
    "cost",
    "CPU and memory beside the models: at rest, of a submission, a poll and a whole task",
    Plan(),
    Plan(rounds=1, tasks=4, clients=2, rest_s=0.5),
    measure,
)
