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
    fault_names = sorted(name for faults in FAULTS.values() for name in faults)
    parser.add_argument(
        "--fault", action="append", choices=fault_names, default=[], help="only this one; may be repeated"
    )
    parser.add_argument("--cluster", action="store_true", help="in place of both: on three nodes")
    parser.add_argument("--backlog", type=int, default=600, help="tasks of the backlog on nodes; 0: none")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    options = parser.parse_args()
    outcomes = [
        _in_a_folder(lambda folder, plan=plan: run(plan, folder, _REPOSITORY, _say)) for plan in _plans(options)
    ]
    report = as_json(outcomes)
    show(report, Console(width=None if sys.stdout.isatty() else 200))
    passed = all(outcome.passed for outcome in outcomes)
    if options.cluster and options.backlog and not options.fault:
        report["backlog"] = _in_a_folder(lambda folder: backlog(folder, _REPOSITORY, options.backlog, _say))
        passed = passed and not report["backlog"]["not_ready"]
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if passed else 1)


def _plans(options: argparse.Namespace) -> list[Plan]:
    """A run for each kind of service that has one of the faults. Where there are two, the second one is shorter."""
    kinds: tuple[On, ...] = ("nodes",) if options.cluster else ("one machine", "a replicated Redis")
    selection = {on: tuple(name for name in FAULTS[on] if not options.fault or name in options.fault) for on in kinds}
    plans = [Plan(options.seed, options.seconds, options.tasks, selection[on], on) for on in kinds if selection[on]]
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
                {"promise": each.promise, "measured": each.measured, "kept": each.passed, "wrong": list(each.wrong)}
                for each in outcome.findings
            ],
        }
        for outcome in outcomes
    ]
    return {"runs": runs, "faults": {fault: _summary(seconds) for fault, seconds in sorted(times.items())}}


def _summary(seconds: Sequence[float | None]) -> dict[str, Any]:
    times = [value for value in seconds if value is not None]
    worst = round(max(times), 1) if len(times) == len(seconds) else "never"
    return {"times": len(seconds), "p50_s": round(median(times), 1) if times else None, "max_s": worst}


def show(report: dict[str, Any], console: Console) -> None:
    for each in report["runs"]:
        table = Table("promise", "measured", "", title=f"Promises, seed {each['seed']} on {each['on']}", box=None)
        for promise in each["promises"]:
            table.add_row(promise["promise"], promise["measured"], "kept" if promise["kept"] else "BROKEN")
            for example in promise["wrong"]:
                table.add_row("", f"  {example}", "")
        console.print(table)
    table = Table("fault", "times", "recovered in p50", "max", title="Faults", box=None)
    for name, entry in report["faults"].items():
        table.add_row(name, *map(str, entry.values()))
    console.print(table)


def _say(line: str) -> None:
    print(line, flush=True)


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
