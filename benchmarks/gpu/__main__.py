"""Command line of the GPU check: `python -m benchmarks.gpu` measures in separate processes, reports and publishes."""

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
    "z-image": (6, ("z-image",)),
    "qwen-image": (8, ("qwen-image",)),
    "wan": (14, ("wan",)),
    "klein-4b": (19, ("klein-4b", "engine", "adapters")),
    "compiled": (13, ("compiled", "fp8", "loading")),
    "flux1": (7, ("flux1",)),
    "flux3": (6, ("flux3",)),
    "ltx2": (6, ("ltx2",)),
}
"""Share of the time and phases of each process. A crash loses the figures of one process only."""
_CHECKPOINT_SHARE: Final = 19
_GRACE_S: Final = 30
"""Seconds after its deadline in which a process may still end by itself."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="Checks and measures models on a GPU."
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="folder for the figures, a table and the logs")
    parser.add_argument(
        "--phases", help="phases, separated by commas (default: all; with --checkpoint machine,kernels)"
    )
    parser.add_argument("--budget-s", type=float, default=600.0, help="seconds for all phases (default: %(default)s)")
    parser.add_argument("--checkpoint", action="append", default=[], help="a folder, or a repository of the hub")
    parser.add_argument("--tiny", action="store_true", help="use bundled checkpoints and small images")
    parser.add_argument("--publish", type=Path, metavar="DIR", help="publish the figures in DIR and update the docs")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.publish:
        from benchmarks import documents  # a GPU machine lacks the packages that it needs

        print(f"published: {', '.join([report.publish(args.publish), *documents.write()])}")
        return 0
    if args.out is None:
        parser.error("--out is missing")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.group:
        _measure(args)
    results = _measure_groups(args)
    (args.out / report.FILE).write_text(json.dumps(results, indent=1))
    (args.out / "table.txt").write_text(table := report.table(results))
    print(table)
    return int(bool(results["failed"] or report.wrong(results)))


def _measure_groups(args: argparse.Namespace) -> dict[str, Any]:
    groups = _groups(args)
    started_at, results = time.monotonic(), report.empty(args.device, tiny=args.tiny)
    weights = {name: GROUPS[name][0] if name in GROUPS else _CHECKPOINT_SHARE for name in groups}
    for name, phases in groups.items():
        remaining_s = started_at + args.budget_s - time.monotonic()
        budget_s = remaining_s * weights[name] / sum(weights.values())
        del weights[name]
        command = [sys.executable, "-m", "benchmarks.gpu", "--group", name, "--phases", ",".join(phases)]
        command += ["--device", args.device, "--out", str(args.out), "--budget-s", str(budget_s)]
        command += ["--tiny"] if args.tiny else []
        print(f"{name}: {', '.join(phases)}, at most {budget_s:.0f} s", flush=True)
        file = args.out / f"{name}.json"
        file.unlink(missing_ok=True)  # an earlier run may have left it
        with (args.out / f"{name}.log").open("w") as log:
            try:
                status = subprocess.run(command, stdout=log, stderr=log, timeout=budget_s + _GRACE_S).returncode
            except subprocess.TimeoutExpired:
                status = "a timeout"
        report.merge(results, file)
        if status:
            results["failed"][name] = f"the process ended with {status}; see {name}.log"
    return results | {"seconds": round(time.monotonic() - started_at, 1)}


def _groups(args: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Returns the phases by process. Tiny runs have two processes, since each has to import torch."""
    group_by_phase = {phase: name for name, (_, phases) in GROUPS.items() for phase in phases}
    default = [phase for phase in group_by_phase if not args.tiny or phase not in _BUNDLED]
    selection = args.phases.split(",") if args.phases else default[:2] if args.checkpoint else default
    if unknown := [phase for phase in selection if phase not in group_by_phase]:
        sys.exit(f"error: no phase {', '.join(unknown)}; there are {', '.join(group_by_phase)}")
    groups: dict[str, tuple[str, ...]] = {}
    for phase in selection:
        name = "klein-4b" if args.tiny and group_by_phase[phase] != "basics" else group_by_phase[phase]
        groups[name] = (*groups.get(name, ()), phase)
    return groups | {f"checkpoint-{number}": (each,) for number, each in enumerate(args.checkpoint, 1)}


def _measure(args: argparse.Namespace) -> None:
    """Runs the phases of this process and ends it, without waiting for threads."""
    faulthandler.dump_traceback_later(args.budget_s + _GRACE_S / 2, exit=True)
    from benchmarks.gpu import phases

    file = args.out / f"{args.group}.json"
    phases.run(args.phases.split(","), args.device, file, args.budget_s, tiny=args.tiny)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
