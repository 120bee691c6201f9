"""`python -m benchmarks.gpu`: measures in processes that can't harm each other, reports, publishes."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu import report

_BUNDLED: Final = tuple(f"bundled/{name}" for name in ("flux2klein", "flux3", "flux", "kontext", "fill"))
GROUPS: Final = {
    "basics": (9, ("machine", "kernels", *_BUNDLED)),
    "klein-4b": (19, ("klein-4b", "engine", "adapters")),
    "compiled": (13, ("compiled", "fp8", "loading")),
    "flux1": (7, ("flux1",)),
    "flux3": (6, ("flux3",)),
    "ltx2": (6, ("ltx2",)),
}
"""Phases of one process each, and their part of the time. What breaks a process takes only its own along."""
_CHECKPOINT: Final = 19
_LATE_S: Final = 30
"""That a process may take to notice that its time is over."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="Checks and measures models on a GPU."
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="folder for figures, a table, and a log of each process")
    parser.add_argument("--phases", help="separated by commas; with checkpoints machine and kernels, else all")
    parser.add_argument("--budget-s", type=float, default=600.0, help="seconds for all (default: %(default)s)")
    parser.add_argument("--checkpoint", action="append", default=[], help="a folder, or a repository of the hub")
    parser.add_argument("--tiny", action="store_true", help="bundled checkpoints and small pictures")
    parser.add_argument("--publish", type=Path, metavar="DIR", help="take the figures in DIR into the docs")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.publish:
        print(f"published: {', '.join(report.publish(chosen.publish))}")
        return 0
    if chosen.out is None:
        parser.error("--out is missing")
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.group:
        _measure(chosen)
    found = _measured_by_groups(chosen)
    (chosen.out / report.FILE).write_text(json.dumps(found, indent=1))
    (chosen.out / "table.txt").write_text(table := report.table(found))
    print(table)
    return int(bool(found["failed"] or report.wrong(found)))


def _measured_by_groups(chosen: argparse.Namespace) -> dict[str, Any]:
    groups = _groups(chosen)
    began, found = time.monotonic(), report.empty(chosen.device, tiny=chosen.tiny)
    weights = {name: GROUPS[name][0] if name in GROUPS else _CHECKPOINT for name in groups}
    for name, phases in groups.items():
        left = began + chosen.budget_s - time.monotonic()
        share = left * weights[name] / sum(weights.values())
        del weights[name]
        command = [sys.executable, "-m", "benchmarks.gpu", "--group", name, "--phases", ",".join(phases)]
        command += ["--device", chosen.device, "--out", str(chosen.out), "--budget-s", str(share)]
        command += ["--tiny"] if chosen.tiny else []
        print(f"{name}: {', '.join(phases)}, at most {share:.0f} s", flush=True)
        file = chosen.out / f"{name}.json"
        file.unlink(missing_ok=True)  # of an earlier run
        with (chosen.out / f"{name}.log").open("w") as log:
            try:
                ended = subprocess.run(command, stdout=log, stderr=log, timeout=share + _LATE_S).returncode
            except subprocess.TimeoutExpired:
                ended = "its time over"
        report.merge(found, file)
        if ended:
            found["failed"][name] = f"the process ended with {ended}; {name}.log says more"
    return found | {"seconds": round(time.monotonic() - began, 1)}


def _groups(chosen: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Phases by the names of their processes; two for what is tiny, as each imports torch."""
    groups_of = {phase: name for name, (_, phases) in GROUPS.items() for phase in phases}
    usual = [phase for phase in groups_of if not chosen.tiny or phase not in _BUNDLED]
    wanted = chosen.phases.split(",") if chosen.phases else usual[:2] if chosen.checkpoint else usual
    if strange := [phase for phase in wanted if phase not in groups_of]:
        sys.exit(f"error: no phase {', '.join(strange)}; there are {', '.join(groups_of)}")
    groups: dict[str, tuple[str, ...]] = {}
    for phase in wanted:
        name = "klein-4b" if chosen.tiny and groups_of[phase] != "basics" else groups_of[phase]
        groups[name] = (*groups.get(name, ()), phase)
    return groups | {f"checkpoint-{number}": (each,) for number, each in enumerate(chosen.checkpoint, 1)}


def _measure(chosen: argparse.Namespace) -> None:
    """The phases of one process. Ends it, whatever threads are still at work."""
    faulthandler.dump_traceback_later(chosen.budget_s + _LATE_S / 2, exit=True)
    from benchmarks.gpu import phases

    file = chosen.out / f"{chosen.group}.json"
    phases.run(chosen.phases.split(","), chosen.device, file, chosen.budget_s, tiny=chosen.tiny)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
