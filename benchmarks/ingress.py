"""What a request costs at the HTTP face.

Three setups of the same app, all up at the same time, measured in turns, so that a busy minute of the machine hits
them alike:

* `service`: as `gen-serve up` starts it, HAProxy before a Ray Serve replica with the throughput switches
* `bare`: the app on one uvicorn process, over the service's own Redis
* `default`: Ray Serve as it comes, its Python proxy before the replica, in a cluster and with a Redis of its own

Two requests: `poll` reads a task that waits, `submit` accepts a small one. The models do no work meanwhile: their
replicas ask for a resource that no machine has, so none starts, and what is submitted waits in Redis. Dispatchers run
as ever; a few tasks are in their hands, the wake-up of each further one costs them next to nothing.

CPU time per request is user and system time of all processes of a setup, Redis and this load generator apart, divided
by the requests answered. What a cluster uses when idle is in it; it is also given alone. Each figure is the median of
the rounds. Conclude from the ratios, not from requests per second: the generator shares the cores with the servers,
and the dispatchers' part of a task comes later and is not in here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Protocol

import uvloop
from gen_serve_bench.results import quantile
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import closed_loop
from benchmarks.bare_server import BareServer
from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.processes import Role, spent
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service
from serve_app.cli.client import Client

OPERATIONS: Final = ("poll", "submit")
CONCURRENCY: Final = 16
POLLED = 64
"""Waiting tasks that the polls go round."""
BODY = {"prompt": "a small red star", "width": 256, "height": 256, "steps": 4}

PARKED = UNLIMITED | {
    f"GEN_MODELS__{MODEL}__ACTOR": '{"num_cpus": 0, "resources": {"no-machine-has-this": 1}}',
    f"GEN_MODELS__{MODEL}__AUTOSCALING__MIN_REPLICAS": "0",
}
"""The service without a model: nothing that is submitted gets done."""
DEFAULT_PROXY = {
    "RAY_SERVE_ENABLE_HA_PROXY": "0",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "0",
}


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 7
    """That count; one more warms up."""
    seconds: float = 2.0
    """Of a round, a setup and an operation."""


class Setup(Protocol):
    base_url: str

    @property
    def key(self) -> str: ...
    def cpu(self) -> dict[Role, float]: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """One round, or the median of several. Times in milliseconds."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms_by_role: Mapping[Role, float]
    """Per request."""

    @property
    def cpu_ms(self) -> float:
        """Of all processes but Redis."""
        return sum(used for role, used in self.cpu_ms_by_role.items() if role != "redis")

    @property
    def redis_cpu_ms(self) -> float:
        return self.cpu_ms_by_role.get("redis", 0.0)

    @classmethod
    def middle(cls, rounds: Sequence[Cost]) -> Cost:
        return cls(
            requests_per_s=median(one.requests_per_s for one in rounds),
            p50_ms=median(one.p50_ms for one in rounds),
            p99_ms=median(one.p99_ms for one in rounds),
            cpu_ms_by_role={
                role: median(one.cpu_ms_by_role.get(role, 0.0) for one in rounds) for role in rounds[0].cpu_ms_by_role
            },
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "requests_per_s": round(self.requests_per_s, 1),
            "p50_ms": round(self.p50_ms, 3),
            "p99_ms": round(self.p99_ms, 3),
            "cpu_ms": round(self.cpu_ms, 4),
            "redis_cpu_ms": round(self.redis_cpu_ms, 4),
            "cpu_ms_by_role": {role: round(used, 4) for role, used in self.cpu_ms_by_role.items()},
        }


def measure(plan: Plan, console: Console) -> Report:
    with ExitStack() as stack:
        console.print("starting three setups")
        service = stack.enter_context(Service(PARKED))
        setups: dict[str, Setup] = {
            "service": service,
            "bare": stack.enter_context(BareServer(service)),
            "default": stack.enter_context(Service(PARKED | DEFAULT_PROXY)),
        }
        requests = {name: _requests(setup) for name, setup in setups.items()}
        idle = {name: _idle_share(setup, plan.seconds) for name, setup in setups.items()}
        measured, failed = _in_turns(setups, requests, plan, console)
    costs = {cell: Cost.middle(taken) for cell, taken in measured.items()}
    console.print(_table(costs))
    return Report(
        figures={operation: {name: costs[name, operation].as_json() for name in setups} for operation in OPERATIONS}
        | {"idle_cpu_share_of_a_core": idle},
        targets=_targets(measured),
        faults=[f"{failed} requests were not answered with 200"] if failed else [],
    )


def _requests(setup: Setup) -> dict[str, list[bytes]]:
    submit = closed_loop.post(setup.base_url, f"/v1/{ENDPOINT}", setup.key, BODY)
    with Client(setup.base_url, setup.key) as client:
        waiting = [client.submit(ENDPOINT, BODY)["id"] for _ in range(POLLED)]
    polls = [closed_loop.get(setup.base_url, f"/v1/get_result?id={task_id}") for task_id in waiting]
    return {"poll": polls, "submit": [submit]}


def _in_turns(
    setups: Mapping[str, Setup],
    requests: Mapping[str, Mapping[str, list[bytes]]],
    plan: Plan,
    console: Console,
) -> tuple[dict[tuple[str, str], list[Cost]], int]:
    """Costs by setup and operation, one per round, and how many requests failed. The first round warms up only."""
    measured: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    failed = 0
    names = list(setups)
    with Progress(console=console) as progress:
        bar = progress.add_task("measuring", total=(plan.rounds + 1) * len(OPERATIONS) * len(setups))
        for number in range(plan.rounds + 1):
            for operation in OPERATIONS:
                # Who comes first changes, so that no setup always follows the same other.
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    length = plan.seconds if number else min(plan.seconds, 0.5)
                    cost, lost = _round(setups[name], requests[name][operation], length)
                    failed += lost
                    if number:
                        measured[name, operation].append(cost)
                    progress.advance(bar)
    return measured, failed


def _round(setup: Setup, requests: list[bytes], seconds: float) -> tuple[Cost, int]:
    before = setup.cpu()
    driven = uvloop.run(closed_loop.drive(setup.base_url, requests, concurrency=CONCURRENCY, seconds=seconds))
    used = spent(before, setup.cpu())
    count = len(driven.latencies)
    if not count:
        raise RuntimeError(f"no request was answered with 200, {driven.failed} otherwise")
    cost = Cost(
        requests_per_s=driven.rate,
        p50_ms=1000 * quantile(driven.latencies, 0.5),
        p99_ms=1000 * quantile(driven.latencies, 0.99),
        cpu_ms_by_role={role: 1000 * cpu / count for role, cpu in used.items()},
    )
    return cost, driven.failed


def _idle_share(setup: Setup, seconds: float) -> float:
    """CPU seconds per second without requests, Redis apart."""
    before = setup.cpu()
    time.sleep(seconds)
    used = spent(before, setup.cpu())
    used.pop("redis", None)
    return round(sum(used.values()) / seconds, 4)


def _targets(measured: Mapping[tuple[str, str], Sequence[Cost]]) -> list[Target]:
    targets = []
    for operation in OPERATIONS:
        service, bare, default = (
            [one.cpu_ms for one in measured[name, operation]] for name in ("service", "bare", "default")
        )
        targets += [
            Target(f"{operation}: CPU, service / bare uvicorn", Interval.of_ratio(service, bare), 2, "x"),
            Target(
                f"{operation}: CPU, Ray Serve's default proxy / service",
                Interval.of_ratio(default, service),
                3,
                "x",
                at_least=True,
            ),
        ]
    return targets


def _table(costs: Mapping[tuple[str, str], Cost]) -> Table:
    table = Table("", "setup", title="ingress", title_justify="left")
    for heading in ("per s", "p50 ms", "p99 ms", "CPU ms", "x bare", "Redis ms"):
        table.add_column(heading, justify="right")
    for operation in OPERATIONS:
        for name in ("bare", "service", "default"):
            cost = costs[name, operation]
            ratio = cost.cpu_ms / costs["bare", operation].cpu_ms
            figures: list[Any] = [f"{cost.requests_per_s:.0f}", f"{cost.p50_ms:.2f}", f"{cost.p99_ms:.2f}"]
            figures += [f"{cost.cpu_ms:.3f}", f"{ratio:.1f}", f"{cost.redis_cpu_ms:.3f}"]
            table.add_row(operation, name, *figures)
    return table


BENCHMARK = Benchmark(
    "ingress",
    "CPU and latency of a poll and a submission: the service, bare uvicorn, Ray Serve's default proxy",
    Plan(),
    Plan(rounds=1, seconds=0.3),
    measure,
)
