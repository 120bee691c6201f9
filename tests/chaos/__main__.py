"""`python -m chaos`: its runs, their table, and the same as JSON. Exit code 1 when a promise was broken.

The second run is short, on a replicated Redis and an object server. On nodes a backlog follows.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

from chaos import backlog, report
from chaos.cluster_faults import NODE_FAULTS
from chaos.faults import FAULTS, REPLICATED_FAULTS
from chaos.run import Plan, run

T = TypeVar("T")

_REPOSITORY: Final = Path(__file__).parents[2]
_USUAL: Final = Plan(seed=1)
_REPLICATED_SHARE: Final = 1 / 5
"""Of the seconds and tasks: the second run has fewer faults."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing that was started is left
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 200)
    outcomes = [
        _in_a_folder(lambda folder, plan=plan: run(plan, folder, _REPOSITORY, _say)) for plan in _plans(arguments)
    ]
    report.show(outcomes, console)
    found, kept = report.as_json(outcomes), all(outcome.kept for outcome in outcomes)
    if arguments.cluster and arguments.backlog and not arguments.fault:
        waited = _in_a_folder(lambda folder: backlog.measure(folder, _REPOSITORY, arguments.backlog, _say))
        found["backlog"] = waited.as_json()
        kept = kept and not waited.not_ready
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if kept else 1)


def _plans(arguments: argparse.Namespace) -> list[Plan]:
    """A run for each kind of service that has one of the faults."""
    usual, replicated, nodes = (
        tuple(name for name in known if not arguments.fault or name in arguments.fault)
        for known in (FAULTS, REPLICATED_FAULTS, NODE_FAULTS)
    )
    if arguments.cluster:
        return [Plan(arguments.seed, arguments.seconds, arguments.tasks, nodes, on="nodes")] if nodes else []
    if arguments.replicated:
        usual = ()
    share = _REPLICATED_SHARE if usual else 1.0
    plans = [
        Plan(arguments.seed, arguments.seconds, arguments.tasks, usual),
        Plan(
            arguments.seed, share * arguments.seconds, int(share * arguments.tasks), replicated, on="a replicated Redis"
        ),
    ]
    return [plan for plan in plans if plan.faults]


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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=_USUAL.seconds, help="of load")
    parser.add_argument("--tasks", type=int, default=_USUAL.tasks, help="offered in that time")
    parser.add_argument("--seed", type=int, default=_USUAL.seed)
    known = sorted([*FAULTS, *REPLICATED_FAULTS, *NODE_FAULTS])
    parser.add_argument("--fault", action="append", choices=known, help="only this one; may be repeated")
    parser.add_argument("--replicated", action="store_true", help="only the second run, at the length of the first")
    parser.add_argument("--cluster", action="store_true", help="in place of both: on three nodes")
    parser.add_argument("--backlog", type=int, default=600, help="tasks of the backlog on nodes; 0: none")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    return parser.parse_args()


if __name__ == "__main__":
    main()
