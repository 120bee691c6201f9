"""What the service takes beside the models: at start, at rest, for a submission, a poll and a whole task of each size.

The model is simulated, a step of a millisecond. CPU is user and system time of the service's processes, the client and
Redis apart where a single request is told; what a resting service uses is taken off. Submissions and polls go one
after the other. Whole tasks have everything on: accounts, credits, moderation, and a webhook to
a destination that takes it; some clients submit and wait at the server. Memory is the proportional set size of all
processes, Redis and Ray included.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rich.console import Console

from benchmarks.destination import Destination
from benchmarks.harness import Benchmark, Goal, Interval, Report
from benchmarks.processes import Role, spent
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service

SETTINGS: Final = UNLIMITED | {f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(): "simulated/1ms"}
BODY: Final = {"prompt": "a red star", "width": 64, "height": 64, "steps": 1, "seed": 1}
SIZES: Final[Mapping[str, tuple[int, str, float]]] = {
    "64 px": (64, "jpeg", 15),
    "512 px": (512, "jpeg", 18),
    "1024 px": (1024, "jpeg", 22),
    "2048 px PNG": (2048, "png", 60),
}
"""Side and format of whole tasks, and the milliseconds of CPU that they should take."""
DISPATCHERS: Final = (1, 2, 8)
"""Beside which Redis' part is measured."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 7
    """That count; one more warms up."""
    tasks: int = 200
    """Of a size in a round; also how many submissions and polls are measured together."""
    clients: int = 8
    rest_s: float = 10.0
    """Without a task, to see what a resting service uses."""


def measure(plan: Plan, console: Console) -> Report:
    destination, cpu_ms, ids = Destination(), defaultdict[str, list[float]](list), list[str]()
    by_role = {size: defaultdict[Role, list[float]](list) for size in SIZES}
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
            whole = {
                size: _cpu(service, partial(_carry, service, destination, url, plan, size), resting, plan.tasks)
                for size in SIZES
            }
            console.print(f"round {number} of {plan.rounds}" if number else "warmed up")
            if number:
                for name, samples in (("submit", submissions), ("poll", polls)):
                    cpu_ms[name].append(1000 * (samples.get("ingress", 0) + samples.get("proxy", 0)))
                for size, roles in whole.items():
                    cpu_ms[size].append(1000 * sum(roles.values()))
                    for role, seconds in roles.items():
                        by_role[size][role].append(1000 * seconds)
    redis_ms = {str(count): _redis_ms_beside(count, plan) for count in DISPATCHERS}
    intervals = {name: Interval.bootstrap_median(values) for name, values in cpu_ms.items()}
    metrics = {
        "ready_s": round(service.ready_s, 2),
        "memory_gib": round(memory, 3),
        "rest_cores": round(sum(resting.values()), 4),
        "submit_cpu_ms": round(intervals["submit"].middle, 3),
        "poll_cpu_ms": round(intervals["poll"].middle, 3),
        "cpu_ms_per_task": {size: round(intervals[size].middle, 3) for size in SIZES},
        "cpu_ms_per_task_by_role": {
            size: {role: round(Interval.bootstrap_median(samples).middle, 3) for role, samples in roles.items()}
            for size, roles in by_role.items()
        },
        "redis_ms_by_dispatchers": redis_ms,
    }
    return Report(metrics, goals(metrics))


def goals(metrics: dict[str, Any]) -> list[Goal]:
    cores, small = "whoever pays for cores: a task takes a GPU seconds", "whoever tries it on a laptop"
    return [
        Goal("from start to ready", "whoever starts it", metrics["ready_s"], 30, "s"),
        Goal("memory at rest", small, metrics["memory_gib"], 2, "GiB"),
        Goal("CPU at rest", small, metrics["rest_cores"], 0.25, "of a core"),
        Goal("CPU of a submission", cores, metrics["submit_cpu_ms"], 5, "ms"),
        Goal("CPU of a poll", cores, metrics["poll_cpu_ms"], 2, "ms"),
        *(
            Goal(f"CPU of a whole task, {size}", cores, metrics["cpu_ms_per_task"][size], most, "ms")
            for size, (_, _, most) in SIZES.items()
        ),
        *(
            Goal(f"Redis' part of it, 64 px, {count} dispatchers", "fleets of hundreds of GPUs", ms, 0.7, "ms")
            for count, ms in metrics["redis_ms_by_dispatchers"].items()
        ),
    ]


def _redis_ms_beside(dispatchers: int, plan: Plan) -> float:
    """CPU of Redis for a whole task, in a service of its own."""
    destination, samples = Destination(), list[float]()
    settings = SETTINGS | {"GEN_DISPATCHER__NUM_REPLICAS": str(dispatchers)}
    with Service(settings) as service, destination.listening() as url:
        time.sleep(plan.rest_s)
        resting = _cpu(service, lambda: time.sleep(plan.rest_s), {}, plan.rest_s)
        for number in range(plan.rounds + 1):
            by_role = _cpu(service, lambda: _carry(service, destination, url, plan, "64 px"), resting, plan.tasks)
            if number:
                samples.append(1000 * by_role.get("redis", 0.0))
    return round(Interval.bootstrap_median(samples).middle, 3)


def _cpu(service: Service, work: Callable[[], object], resting: dict[Role, float], per: float) -> dict[Role, float]:
    """CPU seconds by role, for each of `per`."""
    before, began = service.cpu(), time.monotonic()
    work()
    seconds = time.monotonic() - began
    by_role = spent(before, service.cpu())
    return {role: (cpu - resting.get(role, 0) * seconds) / per for role, cpu in by_role.items()}


def _submit(service: Service, ids: list[str], count: int) -> None:
    with service.client() as client:
        ids.extend(client.submit(ENDPOINT, BODY)["id"] for _ in range(count))


def _poll(service: Service, count: int) -> None:
    """Of a task that has ended."""
    with service.client() as client:
        task_id = client.wait(client.submit(ENDPOINT, BODY)["id"]).task["id"]
        for _ in range(count):
            client.poll(task_id)


def _carry(service: Service, destination: Destination, url: str, plan: Plan, size: str) -> None:
    """Whole tasks to their webhooks. Raises for any that did not come back Ready."""
    side, output_format, _ = SIZES[size]
    body = BODY | {"width": side, "height": side, "output_format": output_format, "webhook_url": url}

    def work(count: int) -> None:
        with service.client() as client:
            for _ in range(count):
                task_id = client.submit(ENDPOINT, body)["id"]
                client.wait(task_id)
                destination.wait(task_id)

    shares = [len(range(number, plan.tasks, plan.clients)) for number in range(plan.clients)]
    with ThreadPoolExecutor(plan.clients) as pool:
        list(pool.map(work, shares))


BENCHMARK = Benchmark(
    "cost",
    "CPU and memory beside the models: at rest, of a submission, a poll and whole tasks of several sizes",
    Plan(),
    Plan(rounds=1, tasks=4, clients=2, rest_s=0.5),
    measure,
)
