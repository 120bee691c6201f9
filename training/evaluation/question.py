"""What a model is asked in an evaluation, and what it gets for its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from training.lessons.pictures import Lesson, Mask
from training.worlds.pictures.judge import Pixels
from training.worlds.pictures.scene import Grid, Scene


@dataclass(frozen=True, slots=True)
class Question:
    """One picture to make. Sizes in pixels; `grid` is the canvas that it will be drawn on."""

    prompt: str
    width: int
    height: int
    grid: Grid
    target: Scene
    references: tuple[Scene, ...] = ()
    mask: Mask | None = None
    """Of the first reference."""
    control: Scene | None = None
    """The picture whose edges are to be kept."""
    outlined: float | None = None
    """Strength of the tuned model for outlined style; None: without it."""

    @classmethod
    def of(cls, lesson: Lesson, size: tuple[int, int], grid: Grid) -> Question:
        """`size` is (width, height)."""
        return cls(lesson.prompt, *size, grid, lesson.target, lesson.references, lesson.mask)


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
    """A bound on a figure of a row's pictures."""

    figure: str
    bound: float
    by: Literal["mean", "median"]
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{self.by} {self.figure} {'≥' if self.at_least else '≤'} {self.bound:g}"


Ask: TypeAlias = Callable[[Random, int], Question]
"""From random numbers and the picture's number in its row."""
Grader: TypeAlias = Callable[[Question, Pixels], Grade]


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of question. `goal` is the least share of right answers, where there is one."""

    name: str
    checkpoints: frozenset[str]
    ask: Ask
    grade: Grader
    goal: float | None = None
    limits: tuple[Limit, ...] = ()
    group: str | None = None
    """A further row that all rows of this name are summed up in."""
    at_least: int = 1
    """Pictures, however few are asked for."""
    at_most: int | None = None
    """Pictures, however many are asked for."""

    def pictures(self, count: int) -> int:
        return max(self.at_least, count if self.at_most is None else min(count, self.at_most))
