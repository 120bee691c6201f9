"""`python -m chaos`: runs chaos tests and prints their results. The exit code is 1 if a promise was broken.

A run on one machine is followed by a short one on a replicated Redis and an object server, a run on nodes by a backlog.
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
from chaos.run import ChaosOutcome, ChaosPlan, measure_backlog, run
from chaos.testbed import Topology

T = TypeVar("T")

_REPOSITORY: Final = Path(__file__).parents[2]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the service on the way out
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360, help="duration of the load")
    parser.add_argument("--tasks", type=int, default=1440, help="tasks sent in that time")
    parser.add_argument("--seed", type=int, default=1)
    fault_names = sorted(name for faults in FAULTS.values() for name in faults)
    parser.add_argument(
        "--fault", action="append", choices=fault_names, default=[], help="cause only this fault; can be repeated"
    )
    parser.add_argument("--cluster", action="store_true", help="run on three nodes instead")
    parser.add_argument("--backlog", type=int, default=600, help="tasks of the backlog on nodes; 0 for none")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    outcomes = [
        _run_in_folder(lambda folder, plan=plan: run(plan, folder, _REPOSITORY, _log)) for plan in _make_plans(options)
    ]
    report = make_report(outcomes)
    print_report(report, Console(width=None if sys.stdout.isatty() else 200))
    passed = all(outcome.passed for outcome in outcomes)
    if options.cluster and options.backlog and not options.fault:
        report["backlog"] = _run_in_folder(lambda folder: measure_backlog(folder, _REPOSITORY, options.backlog, _log))
        passed = passed and not report["backlog"]["not_ready"]
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if passed else 1)


def _make_plans(options: argparse.Namespace) -> list[ChaosPlan]:
    """Plans a run for each topology that has one of the faults. The second run is shorter."""
    topologies: tuple[Topology, ...] = ("nodes",) if options.cluster else ("one machine", "a replicated Redis")
    plans: list[ChaosPlan] = []
    for topology in topologies:
        if faults := tuple(name for name in FAULTS[topology] if not options.fault or name in options.fault):
            plans.append(ChaosPlan(options.seed, options.seconds, options.tasks, faults, topology))
    return [*plans[:1], *(replace(each, seconds=each.seconds / 5, tasks=each.tasks // 5) for each in plans[1:])]


def make_report(outcomes: Sequence[ChaosOutcome]) -> dict[str, Any]:
    """Returns the promises of each run, and the recovery time of each fault."""
    times: dict[str, list[float | None]] = defaultdict(list)
    for outcome in outcomes:
        for fault, recovered_s in outcome.journal.faults:
            times[fault].append(recovered_s)
    runs = [
        {
            "on": outcome.plan.topology,
            "seed": outcome.plan.seed,
            "seconds": outcome.plan.seconds,
            "promises": [
                {"promise": each.promise, "measured": each.measured, "kept": each.passed, "wrong": list(each.wrong)}
                for each in outcome.results
            ],
        }
        for outcome in outcomes
    ]
    return {"runs": runs, "faults": {fault: _summary(seconds) for fault, seconds in sorted(times.items())}}


def _summary(seconds: Sequence[float | None]) -> dict[str, Any]:
    times = [value for value in seconds if value is not None]
    worst = round(max(times), 1) if len(times) == len(seconds) else "never"
    return {"times": len(seconds), "p50_s": round(median(times), 1) if times else None, "max_s": worst}


def print_report(report: dict[str, Any], console: Console) -> None:
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


def _log(line: str) -> None:
    print(line, flush=True)


def _run_in_folder(work: Callable[[Path], T]) -> T:
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
