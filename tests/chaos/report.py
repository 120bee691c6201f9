"""What a run came to, for people and for programs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from chaos.harm import BEFORE, Harm
from chaos.journal import Suffered
from chaos.run import Outcome

_COLUMNS: Final = ("times", "p50_s", "max_s", "failed_polls", "lost", "doubled", "ledger", "wrong_errors")
_TITLES: Final = ("times", "recovered in p50", "max", "failed polls", "lost", "doubled", "ledger off", "wrong Errors")


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    for outcome in outcomes:
        console.print(_promises(outcome))
    faults = Table("fault", *_TITLES, title="Faults", box=None)
    for name, row in by_fault(outcomes).items():
        faults.add_row(name, *("" if row[column] is None else str(row[column]) for column in _COLUMNS))
    console.print(faults)
    killed = of_kills(outcomes)
    if killed["times"]:
        console.print(
            f"{killed['times']} processes killed; recovered in: p50 {killed['p50_s']} s, max {killed['max_s']} s"
        )
    polls = sum(outcome.journal.polls for outcome in outcomes)
    console.print(f"{polls} polls; without a proper answer: {dict(_troubles(outcomes)) or 'none'}")


def by_fault(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The harm that each did, and the seconds from its beginning until a task that was sent then was done, with its
    webhook."""
    times: dict[str, list[float | None]] = defaultdict(list)
    for suffered in _suffered(outcomes):
        times[suffered.fault].append(suffered.recovered_s)
    failed = Counter(trouble.during for outcome in outcomes for trouble in outcome.journal.troubles)
    harm: dict[str, Harm] = {}
    for outcome in outcomes:
        for name, done in outcome.harm.items():
            harm[name] = harm.get(name, Harm()) + done
    rows = {
        name: {**_summary(seconds), "failed_polls": failed[name], **asdict(harm[name])}
        for name, seconds in sorted(times.items())
    }
    if harm[BEFORE] != Harm():
        rows[BEFORE] = {**_summary([]), "failed_polls": failed[BEFORE], **asdict(harm[BEFORE])}
    return rows


def of_kills(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same times over all processes that were killed."""
    return _summary([suffered.recovered_s for suffered in _suffered(outcomes) if suffered.fault.startswith("kill ")])


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "kept": all(outcome.kept for outcome in outcomes),
        "runs": [_run_as_json(outcome) for outcome in outcomes],
        "faults": by_fault(outcomes),
        "kills": of_kills(outcomes),
        "polls": sum(outcome.journal.polls for outcome in outcomes),
        "polls_without_an_answer": dict(_troubles(outcomes)),
    }


def _promises(outcome: Outcome) -> Table:
    where = f" on {outcome.plan.on}"
    promises = Table("promise", "measured", "", title=f"Promises, seed {outcome.plan.seed}{where}", box=None)
    for finding in outcome.findings:
        promises.add_row(finding.promise, finding.measured, "kept" if finding.kept else "BROKEN")
        for example in finding.wrong:
            promises.add_row("", f"  {example}", "")
    return promises


def _run_as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "on": outcome.plan.on,
        "seed": outcome.plan.seed,
        "seconds": outcome.plan.seconds,
        "took_s": round(outcome.took_s),
        "kept": outcome.kept,
        "promises": [
            {"promise": f.promise, "measured": f.measured, "kept": f.kept, "wrong": list(f.wrong)}
            for f in outcome.findings
        ],
        "refused_submissions": dict(Counter(str(refusal.status) for refusal in outcome.journal.refused)),
    }


def _suffered(outcomes: Sequence[Outcome]) -> list[Suffered]:
    return [suffered for outcome in outcomes for suffered in outcome.journal.faults]


def _summary(seconds: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in seconds if value is not None]
    worst = round(max(known), 1) if known else None
    return {
        "times": len(seconds),
        "p50_s": round(median(known), 1) if known else None,
        "max_s": worst if len(known) == len(seconds) else "never",
    }


def _troubles(outcomes: Sequence[Outcome]) -> Counter[str]:
    troubles = (trouble for outcome in outcomes for trouble in outcome.journal.troubles)
    return Counter(f"{trouble.what} ({trouble.during})" for trouble in troubles)
