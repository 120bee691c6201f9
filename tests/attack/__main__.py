"""`python -m attack`: one run, its table, and the same as JSON.

Exit code 1 when an attack failed, or the bystander was made to wait for too long.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from attack import report
from attack.families import FAMILIES
from attack.run import Plan, run
from attack.stage import NotOurs, address_of, started

_REPOSITORY: Final = Path(__file__).parents[2]
_USUAL: Final = Plan()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing that was started is left
    arguments = _arguments()
    plan = Plan(
        arguments.seed,
        arguments.count,
        tuple(arguments.families),
        arguments.idle,
        arguments.replay or arguments.corpus,
        only_corpus=arguments.replay is not None,
    )
    console = Console(width=None if sys.stdout.isatty() else 200)
    with (
        tempfile.TemporaryDirectory(prefix="gen-attack-", ignore_cleanup_errors=True) as folder,
        _target(arguments, Path(folder)) as (url, operator),
    ):
        outcome = run(
            plan, url, operator, Path(folder), _REPOSITORY, lambda told: print(told, flush=True), proxied=True
        )
    report.show(outcome, console)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_json(outcome), indent=1) + "\n")
    sys.exit(1 if outcome.failed or outcome.disturbed else 0)


@contextmanager
def _target(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str]]:
    """Address and operator's key of the service that was named, or of one started for this run."""
    if arguments.url:
        yield arguments.url, arguments.operator_key.read_text().strip()
        return
    print("starting the service", flush=True)
    home = folder / "service"
    home.mkdir()
    with started(home, _REPOSITORY) as service:
        yield service.base_url, (home / "data" / "operator-key").read_text().strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m attack", description=__doc__)
    parser.add_argument("--url", help="of a running service on this machine's loopback interface, else one is started")
    parser.add_argument("--operator-key", type=Path, default=Path(".gen/operator-key"), help="file, with --url")
    parser.add_argument("--count", type=int, default=_USUAL.count, help="attacks, about")
    parser.add_argument("--seed", type=int, default=_USUAL.seed)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--idle", type=float, default=_USUAL.idle_s, help="seconds that the bystander is alone first")
    parser.add_argument("--corpus", type=Path, default=_USUAL.corpus, help="what failed, tried first by later runs")
    parser.add_argument("--replay", type=Path, help="a corpus to try, and nothing else")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    arguments = parser.parse_args()
    try:
        if arguments.url:
            address_of(arguments.url)
    except NotOurs as refusal:
        parser.error(str(refusal))
    return arguments


if __name__ == "__main__":
    main()
