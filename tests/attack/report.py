"""What a run came to, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from attack.bystander import Delays
from attack.run import MOST_TIMES_IDLE, Report


def show(report: Report, console: Console) -> None:
    table = Table(
        "family",
        "tried",
        "failed",
        "p50",
        "p99",
        "worst",
        "refused",
        title=f"Attacks, seed {report.plan.seed}; the bystander's delays in ms",
        box=None,
    )
    table.add_row("none (idle)", "", "", *_delays(report.idle))
    for name, suffered in report.families.items():
        mark = " !" if name in report.disturbed else ""
        table.add_row(name + mark, str(suffered.tried), str(len(suffered.failed)), *_delays(suffered.delays))
    console.print(table)
    tried = sum(suffered.tried for suffered in report.families.values())
    console.print(f"{tried} tried, {len(report.failed)} failed", end="")
    told = (
        f"; p99 over {MOST_TIMES_IDLE:g} times idle, or refused: {', '.join(report.disturbed)}"
        if report.disturbed
        else ""
    )
    console.print(told)
    if report.failed:
        console.print(f"to see the failures again: make attack ATTACK='--replay {report.plan.corpus}'")


def as_json(report: Report) -> dict[str, Any]:
    return {
        "seed": report.plan.seed,
        "tried": sum(suffered.tried for suffered in report.families.values()),
        "failed": len(report.failed),
        "disturbed": list(report.disturbed),
        "idle": _as_json(report.idle),
        "families": {
            name: {
                "tried": suffered.tried,
                "failed": len(suffered.failed),
                "took_s": round(suffered.took_s, 1),
                "slowest_s": round(suffered.slowest_s, 1),
                "slowest": suffered.slowest,
                "statuses": dict(suffered.statuses),
                "bystander": _as_json(suffered.delays),
                "failures": [asdict(failure) for failure in suffered.failed],
            }
            for name, suffered in report.families.items()
        },
    }


def _delays(delays: Delays) -> tuple[str, ...]:
    figures = (f"{1000 * seconds:.0f}" for seconds in (delays.p50, delays.p99, delays.worst))
    return (*figures, str(len(delays.troubles)))


def _as_json(delays: Delays) -> dict[str, Any]:
    return {
        "requests": delays.requests,
        "p50_ms": round(1000 * delays.p50, 1),
        "p99_ms": round(1000 * delays.p99, 1),
        "worst_ms": round(1000 * delays.worst, 1),
        "refused": list(delays.troubles[:20]),
    }
