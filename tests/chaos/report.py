"""What a run came to, for people and for programs."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from chaos.run import Outcome

DOWN = ("kill the HTTP proxy", "kill an ingress replica")


def show(outcome: Outcome, console: Console) -> None:
    promises = Table("promise", "measured", "", title=f"Promises, seed {outcome.plan.seed}", box=None)
    for finding in outcome.findings:
        promises.add_row(finding.promise, finding.measured, "kept" if finding.kept else "BROKEN")
        for example in finding.wrong:
            promises.add_row("", f"  {example}", "")
    console.print(promises)
    faults = Table("fault", "times", "recovered in p50", "max", "failed polls", title="Faults", box=None)
    for name, row in recovery(outcome).items():
        faults.add_row(name, *(str(row[column]) for column in ("times", "p50_s", "max_s", "failed_polls")))
    console.print(faults)
    console.print(f"{outcome.journal.polls} polls; without a proper answer: {dict(_troubles(outcome)) or 'none'}")


def recovery(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Seconds from the beginning of a fault until a task that was sent then was done, its webhook included."""
    times: dict[str, list[float | None]] = defaultdict(list)
    for suffered in outcome.journal.faults:
        times[suffered.fault].append(suffered.recovered_s)
    failed = Counter(trouble.during for trouble in outcome.journal.troubles)
    rows: dict[str, dict[str, Any]] = {}
    for name, seconds in sorted(times.items()):
        known = [value for value in seconds if value is not None]
        rows[name] = {
            "times": len(seconds),
            "p50_s": round(median(known), 1) if known else None,
            "max_s": round(max(known), 1) if len(known) == len(seconds) else "never",
            "failed_polls": failed[name],
        }
    return rows


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.plan.seed,
        "seconds": outcome.plan.seconds,
        "took_s": round(outcome.took_s),
        "kept": outcome.kept,
        "promises": [
            {"promise": f.promise, "measured": f.measured, "kept": f.kept, "wrong": list(f.wrong)}
            for f in outcome.findings
        ],
        "faults": recovery(outcome),
        "polls": outcome.journal.polls,
        "polls_without_an_answer": dict(_troubles(outcome)),
        "refused_submissions": dict(Counter(str(refusal.status) for refusal in outcome.journal.refused)),
    }


def _troubles(outcome: Outcome) -> Counter[str]:
    return Counter(f"{trouble.what} ({trouble.during})" for trouble in outcome.journal.troubles)
