"""Runs at several rates: how many results come in time at each, and where the knee is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from serve_app.load import knee
from serve_app.load.knee import Knee, NoKnee, Trial
from serve_app.load.measured import SUMMARY, Measured
from serve_app.load.plan import NothingSent

Measure: TypeAlias = Callable[[float, int], Measured]
"""Of a rate and a seed."""

LENGTHS_OF_OBJECTIVE: Final = 24
"""How many times the objective a run has to last, at the least: at 5 % too many requests, waits grow by 5 % of the
time, and have to be beyond the objective before the run ends."""


class Interrupted(Exception):
    """Somebody ended a run."""


@dataclass(slots=True)
class Sweep:
    runs: list[Measured] = field(default_factory=list)
    """In the order in which they were made."""
    knee: Knee | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return sum(run.lost for run in self.runs)

    def rates(self) -> list[dict[str, Any]]:
        """By rate, rising; runs at the same one are told one after the other."""
        return [_row(run) for run in sorted(self.runs, key=lambda run: run.settings["rate"])]

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "sweep",
            "settings": self.runs[0].settings if self.runs else None,
            "objective": self.runs[0].objective if self.runs else None,
            "knee": self.knee.as_json() if self.knee else None,
            "rates": self.rates(),
            "notes": list(self.notes),
        }

    def write(self, folder: Path) -> None:
        """The summary, and a folder for each run."""
        for number, run in enumerate(self.runs, start=1):
            run.write(folder / f"{number:02}-{run.settings['rate']:.4g}-per-s")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SUMMARY).write_text(json.dumps(self.as_json(), indent=2) + "\n")


def at_rates(measure: Measure, rates: Sequence[float], seed: int) -> Sweep:
    """One run at each rate, with the same seed. One that is interrupted is the last."""
    sweep = Sweep()
    for rate in rates:
        run = measure(rate, seed)
        sweep.runs.append(run)
        if run.interrupted is not None:
            sweep.notes.append("interrupted: rates that are missing were not run")
            break
    return sweep


def to_the_knee(measure: Measure, share: float, start: float, seed: int) -> Sweep:
    """Runs until the knee is known, or it is clear that none can be found, which the notes say then."""
    sweep = Sweep()

    def trial(rate: float, number: int) -> Trial:
        run = measure(rate, seed + number)
        sweep.runs.append(run)
        if run.interrupted is not None:
            raise Interrupted
        ended = [one for one in run.outcomes if not one.warm_up and one.end != "interrupted"]
        return Trial(len(ended), sum(one.good for one in ended))

    try:
        sweep.knee = knee.search(trial, share, start)
    except Interrupted:
        sweep.notes.append("interrupted before the knee was found")
    except (NoKnee, NothingSent) as problem:
        sweep.notes.append(f"no knee: {problem}")
    if limited := {run.settings["rate"] for run in sweep.runs if run.generator["limits"]}:
        told = ", ".join(f"{rate:.4g}" for rate in sorted(limited))
        sweep.notes.append(f"at {told} per second the generator was the limit: the knee may be its own")
    return sweep


def _row(run: Measured) -> dict[str, Any]:
    took = run.figures["time_to_result"] or {}
    return {
        "rate": round(run.settings["rate"], 4),
        "requests": run.figures["requests"],
        "attainment": run.figures["attainment"],
        "goodput_per_s": run.figures["goodput_per_s"],
        "throughput_per_s": run.figures["throughput_per_s"],
        "p50": took.get("p50"),
        "p99": took.get("p99"),
        "refused": run.figures["ends"].get("refused", 0),
        "failed": run.figures["ends"].get("failed", 0),
        "lost": run.lost,
        "generator_was_limit": bool(run.generator["limits"]),
    }
