"""Puts rows of questions to a painter and sums up the grades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean, median
from typing import Any, Generic, Literal, Protocol, TypeVar

from PIL import Image

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Grade:
    right: bool
    parts: Mapping[str, bool] = field(default_factory=dict)
    """What was looked at by itself."""
    figures: Mapping[str, float] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """In words to count by."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a figure of a row's answers."""

    figure: str
    bound: float
    by: Literal["mean", "median"] = "mean"
    at_least: bool = False

    @property
    def name(self) -> str:
        return f"{self.by} {self.figure}"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{self.name} {'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Row(Generic[Question, Answer]):
    """A kind of question. `goal` is the least share of right answers, where there is one."""

    name: str
    checkpoints: frozenset[str]
    ask: Callable[[Random, int], Question]
    """From random numbers and the answer's number in its row."""
    grade: Callable[[Question, Answer], Grade]
    show: Callable[[Question, Answer | None], tuple[str, Sequence[Image.Image]]]
    """What was asked, inputs and result as pictures; the last one is the result."""
    questions_seed: int | str
    first_seed: int
    """Of the answers."""
    goal: float | None = None
    limits: tuple[Limit, ...] = ()
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
    """One row of one checkpoint."""

    row: str
    grades: tuple[Grade, ...]
    goal: float | None
    limits: tuple[Limit, ...]
    samples: tuple[Sample, ...] = ()

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
        figures = self.figures
        bounded = all(limit.name in figures and limit.met(figures[limit.name]) for limit in self.limits)
        return bounded and (self.goal is None or self.right >= self.goal)

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


def examine(
    painter: Painter[Question, Answer],
    rows: Sequence[Row[Question, Answer]],
    count: int,
    advance: Callable[[str], None] = lambda name: None,
) -> list[Result]:
    """`count` answers of each row, or as many as it takes at least; `advance` is called after each with its row.

    Groups of rows are summed up in one more row, after their last one.
    """
    results: list[Result] = []
    for index, row in enumerate(rows):
        results.append(_examined(painter, row, row.count(count), advance))
        if row.group and row.group not in {later.group for later in rows[index + 1 :]}:
            members = {other.name for other in rows if other.group == row.group}
            grades = (grade for result in results if result.row in members for grade in result.grades)
            results.append(Result(row.group, tuple(grades), row.goal, ()))
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
    return Result(row.name, tuple(grades), row.goal, row.limits, tuple(samples))
