"""What a benchmark leaves: a file of figures, a table of targets, an exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Target:
    """A promise about one figure: at most `limit`, or at least, in `unit`."""

    name: str
    measured: float | None
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def promise(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}".strip()

    def as_json(self) -> dict[str, Any]:
        measured = None if self.measured is None else round(self.measured, 4)
        return {"name": self.name, "measured": measured, "target": self.promise, "met": self.met}


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    machine: dict[str, Any]
    """`machine.facts()`, taken before measuring."""
    settings: dict[str, Any]
    """What was asked for: sizes, counts, rates."""
    figures: dict[str, Any]
    targets: Sequence[Target] = ()
    faults: Sequence[str] = field(default=())
    """What must never happen and did. A missed target is none."""

    @property
    def exit_code(self) -> int:
        return 1 if self.faults else 0

    def as_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "machine": self.machine,
            "settings": self.settings,
            "figures": self.figures,
            "targets": [target.as_json() for target in self.targets],
            "faults": list(self.faults),
        }

    def write(self, folder: Path = RESULTS) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")
        return path

    def show(self, console: Console) -> None:
        if self.targets:
            table = Table("", "measured", "target", "", title=self.name, title_justify="left")
            for target in self.targets:
                measured = "none" if target.measured is None else f"{target.measured:.3g} {target.unit}"
                table.add_row(target.name, measured, target.promise, "met" if target.met else "[yellow]missed")
            console.print(table)
        for fault in self.faults:
            console.print(f"[red]{fault}")

    def finish(self, console: Console) -> int:
        """Writes and shows it; returns the exit code."""
        self.write()
        self.show(console)
        return self.exit_code
