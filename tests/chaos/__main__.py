"""`python -m chaos`: one run, its table, and the same as JSON. Exit code 1 when a promise was broken."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from chaos import report
from chaos.faults import FAULTS
from chaos.run import Plan, run

_REPOSITORY = Path(__file__).parents[2]
_USUAL = Plan(seed=1)


def main() -> None:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    plan = Plan(arguments.seed, arguments.seconds, arguments.tasks, tuple(arguments.fault or FAULTS))
    with tempfile.TemporaryDirectory(prefix="gen-chaos-", ignore_cleanup_errors=True) as folder:
        try:
            outcome = run(plan, Path(folder), _REPOSITORY, lambda told: print(told, flush=True))
        except BaseException:
            log = Path(folder) / "service.log"
            if log.exists():
                print(log.read_text()[-3000:], file=sys.stderr)
            raise
    report.show(outcome, console)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_json(outcome), indent=1) + "\n")
    sys.exit(0 if outcome.kept else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=_USUAL.seconds, help="of load")
    parser.add_argument("--tasks", type=int, default=_USUAL.tasks, help="offered in that time")
    parser.add_argument("--seed", type=int, default=_USUAL.seed)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    return parser.parse_args()


if __name__ == "__main__":
    main()
