"""Puts rows of questions to a painter and sums up the grades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean, median
from typing import Any, Final

from training.evaluation.painters import FIRST_SEED, Painter
from training.evaluation.question import Grade, Limit, Question, Row
from training.evaluation.rows import ALL_EDITS, ALL_EDITS_GOAL, ROWS
from training.worlds.pictures.judge import Pixels

_FIRST_LESSON: Final = 20_000
"""Seed of the first row's questions; training starts at 0."""
_SEEDS: Final = 10_000
"""Pictures per row have seeds of their own, at most so many."""
SHOWN: Final = 4
"""Pictures of a row that are kept to be looked at, or as many as it takes at least."""


@dataclass(frozen=True, slots=True)
class Answered:
    question: Question
    picture: Pixels | None
    grade: Grade


@dataclass(frozen=True, slots=True)
class Result:
    """One row of one checkpoint."""

    row: str
    grades: tuple[Grade, ...]
    goal: float | None
    limits: tuple[Limit, ...]
    shown: tuple[Answered, ...] = ()

    @property
    def right(self) -> float:
        return mean(grade.right for grade in self.grades)

    @property
    def parts(self) -> dict[str, float]:
        """Share of the pictures in which each part is right."""
        names = dict.fromkeys(name for grade in self.grades for name in grade.parts)
        return {name: mean(grade.parts.get(name, False) for grade in self.grades) for name in names}

    @property
    def figures(self) -> dict[str, float]:
        """By name with how it is summed up: `mean rag`."""
        by = {limit.figure: limit.by for limit in self.limits}
        names = dict.fromkeys(name for grade in self.grades for name in grade.figures)
        found = {name: [grade.figures[name] for grade in self.grades if name in grade.figures] for name in names}
        sums = {"mean": mean, "median": median}
        return {f"{by.get(name, 'mean')} {name}": sums[by.get(name, "mean")](found[name]) for name in names}

    @property
    def goals(self) -> str:
        told = [] if self.goal is None else [f"≥ {self.goal:.0%}"]
        return ", ".join([*told, *map(str, self.limits)])

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        if self.goal is None and not self.limits:
            return None
        enough = self.goal is None or self.right >= self.goal
        figures = self.figures
        bounds = ((limit, figures.get(f"{limit.by} {limit.figure}")) for limit in self.limits)
        return enough and all(value is not None and limit.met(value) for limit, value in bounds)

    @property
    def faults(self) -> Counter[str]:
        return Counter(fault for grade in self.grades for fault in grade.faults)

    def as_json(self) -> dict[str, Any]:
        return {
            "pictures": len(self.grades),
            "right": round(self.right, 4),
            "goals": self.goals,
            "met": self.met,
            "parts": {name: round(share, 4) for name, share in self.parts.items()},
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
            "faults": dict(self.faults.most_common()),
        }


def rows_for(checkpoint: str) -> list[Row]:
    return [row for row in ROWS if checkpoint in row.checkpoints]


def examine(
    painter: Painter, rows: Sequence[Row], count: int, advance: Callable[[str], None] = lambda name: None
) -> list[Result]:
    """`count` pictures of each row, or as many as it takes at least; `advance` is called after each with its row."""
    results: list[Result] = []
    for row in rows:
        results.append(_examined(painter, row, row.pictures(count), advance))
    groups = {row.name: row.group for row in rows if row.group}
    if groups:
        members = [result for result in results if groups.get(result.row) == ALL_EDITS]
        grades = tuple(grade for result in members for grade in result.grades)
        results.insert(results.index(members[-1]) + 1, Result(ALL_EDITS, grades, ALL_EDITS_GOAL, ()))
    return results


def _examined(painter: Painter, row: Row, count: int, advance: Callable[[str], None]) -> Result:
    number = ROWS.index(row)
    random = Random(_FIRST_LESSON + number)
    questions = [row.ask(random, index) for index in range(count)]
    answered: list[Answered] = []
    grades: list[Grade] = []
    pictures = painter.paint(questions, FIRST_SEED + _SEEDS * number)
    for question, picture in zip(questions, pictures, strict=True):
        grade = Grade(False, faults=(picture,)) if isinstance(picture, str) else row.grade(question, picture)
        grades.append(grade)
        if len(answered) < max(SHOWN, row.at_least):
            answered.append(Answered(question, None if isinstance(picture, str) else picture, grade))
        advance(row.name)
    return Result(row.name, tuple(grades), row.goal, row.limits, tuple(answered))
