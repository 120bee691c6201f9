"""A run that was made: its outcomes, and what they come to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from serve_app.load import figures, strain
from serve_app.load.figures import Window
from serve_app.load.objective import Objective
from serve_app.load.outcome import Outcome
from serve_app.load.plan import Plan
from serve_app.load.run import Ran

ROWS: Final = "rows.jsonl"
SUMMARY: Final = "summary.json"
_CLOCKS_S: Final = -0.05
"""A median wait below it is no wait, but two clocks that differ."""


@dataclass(frozen=True, slots=True)
class Measured:
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    generator: Mapping[str, Any]
    objective: str | None
    solo: Mapping[str, float]
    """Seconds that a request of a kind takes alone, where the objective is a multiple of it."""
    started: float
    """Epoch seconds."""
    interrupted: float | None
    notes: tuple[str, ...] = ()
    """What a reader has to know to read the figures rightly."""
    outcomes: list[Outcome] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        plan: Plan,
        ran: Ran,
        objective: Objective | None = None,
        solo: Mapping[str, float] | None = None,
        notes: tuple[str, ...] = (),
        asked: Mapping[str, Any] | None = None,
    ) -> Self:
        """Marks the outcomes with their objective, and those of the warm-up. `asked` is the target's part of the
        work."""
        kinds = {request.kind for request in plan.requests}
        seconds = objective.of_kinds(kinds, solo or {}) if objective else {}
        for outcome in ran.outcomes:
            outcome.objective = seconds.get(outcome.kind)
            outcome.warm_up = outcome.intended < plan.settings.warm_up
        window = plan.window
        if ran.interrupted is not None:
            window = Window(window.begin, max(window.begin, min(window.end, ran.interrupted)))
        told = figures.figures(ran.outcomes, window, plan.weights)
        return cls(
            settings=asdict(plan.settings) | {"work": plan.settings.work | dict(asked or {})},
            figures=told,
            generator=strain.figures(ran.outcomes, ran.strains),
            objective=str(objective) if objective else None,
            solo={kind: round(value, 4) for kind, value in (solo or {}).items()},
            started=ran.started,
            interrupted=None if ran.interrupted is None else round(ran.interrupted, 3),
            notes=(*notes, *_notes(told, ran)),
            outcomes=ran.outcomes,
        )

    @property
    def lost(self) -> int:
        return self.figures["lost"]

    def as_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "outcomes"}
        return {"kind": "run", **told}

    def write(self, folder: Path) -> None:
        """The raw rows, and the summary."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = "".join(f"{json.dumps(outcome.as_json())}\n" for outcome in self.outcomes)
        (folder / ROWS).write_text(rows)
        (folder / SUMMARY).write_text(json.dumps(self.as_json(), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Of a folder that a run wrote, or one of its two files. Without raw rows there are no outcomes.

        Raises FileNotFoundError, or ValueError that says what is wrong with which file.
        """
        folder = path if path.is_dir() else path.parent
        summary = folder / SUMMARY if path.name == ROWS or path.is_dir() else path
        try:
            told = json.loads(summary.read_text())
            kind = told.pop("kind")
            if kind != "run":
                raise ValueError(f"{summary} is of a {kind}; compare takes single runs, which lie in its folders")
            told["notes"] = tuple(told["notes"])
            return cls(**told, outcomes=_rows(summary.with_name(ROWS)))
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"{summary} is no summary of a run ({type(problem).__name__}: {problem})") from None


def _rows(path: Path) -> list[Outcome]:
    if not path.is_file():
        return []
    rows: list[Outcome] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            rows.append(Outcome.of_json(json.loads(line)))
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"{path}, line {number} is no outcome ({type(problem).__name__}: {problem})") from None
    return rows


def _notes(told: Mapping[str, Any], ran: Ran) -> list[str]:
    notes: list[str] = []
    if ran.interrupted is not None:
        notes.append(f"interrupted after {ran.interrupted:.1f} s; what had not ended by then is left out of shares")
    if told["megapixel_steps_per_s"] is None:
        notes.append("no megapixel-steps: some requests leave their size or steps to the server")
    wait = told["queue_wait"]
    if wait and wait["p50"] < _CLOCKS_S:
        notes.append("the server's clock is behind this machine's: queue waits are wrong by the difference")
    return notes
