"""What the service takes before it does anything.

Measured: seconds from the start of the process to readiness, its model loaded; then, idle, memory as proportional set
size of all its processes, Redis and Ray included, in MiB, and the share of one core it uses. The model is the small
bundled one: a large one adds the time to read its weights, and their size.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.processes import Role, spent
from benchmarks.report import Report, Target
from benchmarks.service import UNLIMITED, Service


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    """Services started one after the other, after one that does not count: its files are in the system's cache then."""
    settle_s: float = 5.0
    """What loads late is there by then; at least one sampling of Ray's metrics has passed."""
    idle_s: float = 10.0


def measure(plan: Plan, console: Console) -> Report:
    ready: list[float] = []
    memory: dict[Role, list[float]] = defaultdict(list)
    busy: dict[Role, list[float]] = defaultdict(list)
    for number in range(plan.rounds + 1):
        console.print(f"starting service {number}" if number else "starting a service to warm up")
        with Service(UNLIMITED) as service:
            if not number:
                continue
            ready.append(service.ready_s)
            time.sleep(plan.settle_s)
            before = service.cpu()
            time.sleep(plan.idle_s)
            for role, used in spent(before, service.cpu()).items():
                busy[role].append(used / plan.idle_s)
            for role, held in service.memory().items():
                memory[role].append(held)
    console.print(_table(memory, busy))
    return Report(
        figures={
            "ready_s": Interval.of_median(ready).as_json(),
            "memory_mib": {role: round(median(held), 1) for role, held in memory.items()},
            "cpu_share_of_a_core": {role: round(median(shares), 4) for role, shares in busy.items()},
        },
        targets=[
            Target("from start to ready", Interval.of_median(ready), 12, "s"),
            Target("memory at rest", Interval.of_median([mib / 1024 for mib in _sums(memory)]), 1.5, "GiB"),
            Target("CPU at rest", Interval.of_median(_sums(busy)), 0.15, "of a core"),
        ],
    )


def _sums(by_role: dict[Role, list[float]]) -> list[float]:
    """Of all roles, a figure a round."""
    return [sum(values) for values in zip(*by_role.values(), strict=True)]


def _table(memory: dict[Role, list[float]], busy: dict[Role, list[float]]) -> Table:
    table = Table("role", "memory MiB", "share of a core", title="rest", title_justify="left")
    for role in sorted(memory, key=lambda role: -median(memory[role])):
        table.add_row(role, f"{median(memory[role]):.0f}", f"{median(busy[role]):.3f}")
    return table


BENCHMARK = Benchmark(
    "rest",
    "seconds until ready, then memory and CPU of a service that does nothing",
    Plan(),
    Plan(rounds=1, settle_s=0.5, idle_s=1),
    measure,
)
