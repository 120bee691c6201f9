"""What a benchmark finds: figures, goals met or missed, and what must never happen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.interval import Interval


@dataclass(frozen=True, slots=True)
class Target:
    """A goal for one figure: at most `limit`, or at least, in `unit`."""

    name: str
    measured: float | Interval | None
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def value(self) -> float | None:
        """The figure that counts: of several rounds their median."""
        return self.measured.middle if isinstance(self.measured, Interval) else self.measured

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def goal(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {plain(self.limit)} {self.unit}".strip()

    @property
    def found(self) -> str:
        """With its interval, where there is one."""
        if self.value is None:
            return "none"
        spread = ""
        if isinstance(self.measured, Interval) and self.measured.n > 1:
            spread = f" ({plain(self.measured.low)} to {plain(self.measured.high)})"
        return f"{plain(self.value)}{spread} {self.unit}".strip()

    def as_json(self) -> dict[str, Any]:
        interval = self.measured.as_json() if isinstance(self.measured, Interval) else None
        return {
            "name": self.name,
            "measured": None if self.value is None else float(f"{self.value:.6g}"),
            "interval": interval,
            "limit": self.limit,
            "unit": self.unit,
            "at_least": self.at_least,
            "met": self.met,
        }

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> Target:
        measured = written["measured"]
        if of_rounds := written["interval"]:
            measured = Interval(of_rounds["n"], of_rounds["low"], of_rounds["median"], of_rounds["high"])
        return cls(written["name"], measured, written["limit"], written["unit"], written["at_least"])


@dataclass(frozen=True, slots=True)
class Report:
    figures: dict[str, Any]
    """As JSON has it."""
    targets: Sequence[Target] = ()
    faults: Sequence[str] = ()
    """What must never happen and did: a wrong answer, a lost task, two sides that did different work. A missed target
    is none, as machines differ."""
    draw: Callable[[Path], object] | None = None
    """Writes the plot, a PNG."""

    def as_json(self) -> dict[str, Any]:
        return {
            "figures": self.figures,
            "targets": [target.as_json() for target in self.targets],
            "faults": list(self.faults),
        }

    def show(self, console: Console, title: str) -> None:
        if self.targets:
            table = Table("", "measured", "goal", "", title=title, title_justify="left")
            for target in self.targets:
                table.add_row(target.name, target.found, target.goal, "met" if target.met else "[yellow]missed")
            console.print(table)
        for fault in self.faults:
            console.print(f"[red]{fault}")


def plain(value: float) -> str:
    """Three digits that count: 0.0123, 12.3, 1,230."""
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(value) >= 1000 else f"{float(digits):g}"
