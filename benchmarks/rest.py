"""What the service takes before it does anything: `python -m benchmarks.rest`.

Measured: seconds from the start of the process to readiness, its model loaded; then, idle, memory as proportional set
size of all its processes, Redis and Ray included, in MiB, and the share of one core it uses. The model is the small
bundled one: a large one adds the time to read its weights, and their size.
"""

from __future__ import annotations

import sys
import time

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.processes import spent
from benchmarks.report import Report, Target
from benchmarks.service import UNLIMITED, Service

SETTLE_S = 3.0
IDLE_S = 5.0


def measure(service: Service, facts: dict[str, object], console: Console) -> Report:
    """Of a service that has just started and done nothing yet. `facts` were taken before it started."""
    time.sleep(SETTLE_S)
    before = service.cpu()
    time.sleep(IDLE_S)
    busy = {role: used / IDLE_S for role, used in spent(before, service.cpu()).items()}
    memory = service.memory()
    table = Table("role", "memory MiB", "share of a core", title="rest", title_justify="left")
    for role in sorted(memory, key=lambda role: -memory[role]):
        table.add_row(role, f"{memory[role]:.0f}", f"{busy.get(role, 0):.3f}")
    console.print(table)
    return Report(
        name="rest",
        machine=facts,
        settings={"settle_s": SETTLE_S, "idle_s": IDLE_S},
        figures={
            "ready_s": round(service.ready_s, 2),
            "memory_mib": {role: round(held, 1) for role, held in memory.items()},
            "cpu_share_of_a_core": {role: round(share, 4) for role, share in busy.items()},
        },
        targets=[
            Target("from start to ready", service.ready_s, 45, "s"),
            Target("memory at rest", sum(memory.values()) / 1024, 4, "GiB"),
        ],
    )


def main() -> None:
    """Start-up time, memory and idle CPU of a service at rest."""
    console = Console()
    facts = machine.facts()
    console.print("starting a service")
    with Service(UNLIMITED) as service:
        report = measure(service, facts, console)
    sys.exit(report.finish(console))


if __name__ == "__main__":
    typer.run(main)
