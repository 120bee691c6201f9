"""Puts rows of questions to a painter and sums up the grades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean, median
from typing import Any, Final, Generic, Protocol, TypeVar

from PIL import Image

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_SUMS: Final = {"mean": mean, "median": median}


@dataclass(frozen=True, slots=True)
class Grade:
    right: bool
    parts: Mapping[str, bool] = field(default_factory=dict)
    """What was looked at by itself."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """By names that begin with how a row sums them up: `mean rag`, `median edge px`."""
    faults: tuple[str, ...] = ()
    """In words to count by."""


@dataclass(frozen=True, slots=True)
class Row(Generic[Question, Answer]):
    """A kind of question."""

    name: str
    checkpoints: Sequence[str]
    ask: Callable[[Random, int], Question]
    """From random numbers and the answer's number in its row."""
    grade: Callable[[Question, Answer], Grade]
    show: Callable[[Question, Answer | None], tuple[str, Sequence[Image.Image]]]
    """What was asked, inputs and result as pictures; the last one is the result."""
    questions_seed: int | str
    first_seed: int
    """Of the answers."""
    least: Mapping[str, float] = field(default_factory=dict)
    """Goals by figures, or `right` for the share of right answers."""
    most: Mapping[str, float] = field(default_factory=dict)
    group: str | None = None
    """A further row that all rows of this name are summed up in."""
    at_least: int = 1
    """Answers, however few are asked for."""
    at_most: int | None = None
    """Answers, however many are asked for."""
    shown: int = 4
    """Answers that are kept to be looked at."""

    def count(self, asked: int) -> int:
        return max(self.at_least, asked if self.at_most is None else min(asked, self.at_most))

    @property
    def goals(self) -> str:
        told = [f"≥ {bound:.0%}" if name == "right" else f"{name} ≥ {bound:g}" for name, bound in self.least.items()]
        return ", ".join([*told, *(f"{name} ≤ {bound:g}" for name, bound in self.most.items())])


class Painter(Protocol[Question, Answer]):  # pyright: ignore[reportInvalidTypeVarUse]  # questions go in alone
    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Answer | str]:
        """An answer to every question, in order; where there is none, the reason."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    told: str
    pictures: Sequence[Image.Image]
    right: bool


@dataclass(frozen=True, slots=True)
class Result:
    """One row of one checkpoint, or a group of them by the name of `row`."""

    name: str
    row: Row[Any, Any]
    grades: Sequence[Grade]
    samples: Sequence[Sample] = ()

    @property
    def right(self) -> float:
        return mean(grade.right for grade in self.grades)

    @property
    def parts(self) -> dict[str, float]:
        """Share of the answers in which each part is right."""
        names = dict.fromkeys(name for grade in self.grades for name in grade.parts)
        return {name: mean(grade.parts.get(name, False) for grade in self.grades) for name in names}

    @property
    def figures(self) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for name, value in (figure for grade in self.grades for figure in grade.figures.items()):
            found.setdefault(name, []).append(value)
        return {name: _SUMS[name.split()[0]](values) for name, values in found.items()}

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        known = {"right": self.right, **self.figures}
        least = [name in known and known[name] >= bound for name, bound in self.row.least.items()]
        most = [name in known and known[name] <= bound for name, bound in self.row.most.items()]
        return all(least + most) if least + most else None

    @property
    def faults(self) -> Counter[str]:
        return Counter(fault for grade in self.grades for fault in grade.faults)

    def as_json(self) -> dict[str, Any]:
        return {
            "pictures": len(self.grades),
            "right": round(self.right, 4),
            "goals": self.row.goals,
            "met": self.met,
            "parts": {name: round(share, 4) for name, share in self.parts.items()},
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
            "faults": dict(self.faults.most_common()),
        }


def examine(
    painter: Painter[Question, Answer],
    rows: Sequence[Row[Question, Answer]],
    count: int,
    advance: Callable[[str], None] = lambda name: None,
) -> list[Result]:
    """`count` answers of each row, as far as `Row.count` has it; `advance` is called after each with its row.

    Groups of rows are summed up in one more row, after their last one.
    """
    results: list[Result] = []
    for index, row in enumerate(rows):
        results.append(_examined(painter, row, row.count(count), advance))
        if row.group and row.group not in {later.group for later in rows[index + 1 :]}:
            members = [result.grades for result in results if result.row.group == row.group]
            results.append(Result(row.group, row, [grade for grades in members for grade in grades]))
    return results


def _examined(
    painter: Painter[Question, Answer], row: Row[Question, Answer], count: int, advance: Callable[[str], None]
) -> Result:
    random = Random(row.questions_seed)
    questions = [row.ask(random, index) for index in range(count)]
    grades: list[Grade] = []
    samples: list[Sample] = []
    for question, answer in zip(questions, painter.paint(questions, row.first_seed), strict=True):
        failed = isinstance(answer, str)
        grades.append(Grade(False, faults=(answer,)) if failed else row.grade(question, answer))
        if len(samples) < row.shown:
            samples.append(Sample(*row.show(question, None if failed else answer), grades[-1].right))
        advance(row.name)
    return Result(row.name, row, grades, samples)
