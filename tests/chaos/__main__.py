"""`python -m chaos`: its runs, their table, and the same as JSON. Exit code 1 when a promise was broken.

The second run is short, on a replicated Redis and an object server. On nodes a backlog follows.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table

from chaos.faults import FAULTS
from chaos.run import Outcome, Plan, backlog, run
from chaos.service import On

T = TypeVar("T")

_REPOSITORY: Final = Path(__file__).parents[2]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing that was started is left
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360, help="of load")
    parser.add_argument("--tasks", type=int, default=1440, help="offered in that time")
    parser.add_argument("--seed", type=int, default=1)
    known = sorted(name for faults in FAULTS.values() for name in faults)
    parser.add_argument("--fault", action="append", choices=known, default=[], help="only this one; may be repeated")
    parser.add_argument("--cluster", action="store_true", help="in place of both: on three nodes")
    parser.add_argument("--backlog", type=int, default=600, help="tasks of the backlog on nodes; 0: none")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    given = parser.parse_args()
    outcomes = [_in_a_folder(lambda folder, plan=plan: run(plan, folder, _REPOSITORY, _say)) for plan in _plans(given)]
    found = as_json(outcomes)
    show(found, Console(width=None if sys.stdout.isatty() else 200))
    kept = all(outcome.kept for outcome in outcomes)
    if given.cluster and given.backlog and not given.fault:
        found["backlog"] = _in_a_folder(lambda folder: backlog(folder, _REPOSITORY, given.backlog, _say))
        kept = kept and not found["backlog"]["not_ready"]
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if kept else 1)


def _plans(given: argparse.Namespace) -> list[Plan]:
    """A run for each kind of service that has one of the faults. Where there are two, the second one is shorter."""
    kinds: tuple[On, ...] = ("nodes",) if given.cluster else ("one machine", "a replicated Redis")
    chosen = {on: tuple(name for name in FAULTS[on] if not given.fault or name in given.fault) for on in kinds}
    plans = [Plan(given.seed, given.seconds, given.tasks, chosen[on], on) for on in kinds if chosen[on]]
    return [*plans[:1], *(replace(each, seconds=each.seconds / 5, tasks=each.tasks // 5) for each in plans[1:])]


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Of faults the seconds from their beginning until a task that was sent then was done, with its webhook."""
    times: dict[str, list[float | None]] = defaultdict(list)
    for outcome in outcomes:
        for fault, recovered_s in outcome.journal.faults:
            times[fault].append(recovered_s)
    runs = [
        {
            "on": outcome.plan.on,
            "seed": outcome.plan.seed,
            "seconds": outcome.plan.seconds,
            "promises": [
                {"promise": each.promise, "measured": each.measured, "kept": each.kept, "wrong": list(each.wrong)}
                for each in outcome.findings
            ],
        }
        for outcome in outcomes
    ]
    return {"runs": runs, "faults": {fault: _summary(seconds) for fault, seconds in sorted(times.items())}}


def _summary(seconds: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in seconds if value is not None]
    worst = round(max(known), 1) if len(known) == len(seconds) else "never"
    return {"times": len(seconds), "p50_s": round(median(known), 1) if known else None, "max_s": worst}


def show(found: dict[str, Any], console: Console) -> None:
    for each in found["runs"]:
        table = Table("promise", "measured", "", title=f"Promises, seed {each['seed']} on {each['on']}", box=None)
        for promise in each["promises"]:
            table.add_row(promise["promise"], promise["measured"], "kept" if promise["kept"] else "BROKEN")
            for example in promise["wrong"]:
                table.add_row("", f"  {example}", "")
        console.print(table)
    table = Table("fault", "times", "recovered in p50", "max", title="Faults", box=None)
    for name, of in found["faults"].items():
        table.add_row(name, *map(str, of.values()))
    console.print(table)


def _say(told: str) -> None:
    print(told, flush=True)


def _in_a_folder(work: Callable[[Path], T]) -> T:
    with tempfile.TemporaryDirectory(prefix="gen-chaos-", ignore_cleanup_errors=True) as folder:
        try:
            return work(Path(folder))
        except BaseException:
            log = Path(folder) / "service" / "service.log"
            if log.exists():
                print(log.read_text()[-3000:], file=sys.stderr)
            raise


if __name__ == "__main__":
    main()
