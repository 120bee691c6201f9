"""What is practised with prompts alone: questions about what is where, and what an edit is about."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, get_args

import torch
from torch import Tensor

from training.lessons.batches import UNKNOWN, random_grid
from training.lessons.lesson import Lesson
from training.lessons.pictures import change, tell
from training.worlds import palette, shapes
from training.worlds.pictures.scene import Background, BackgroundKind, Thing
from training.worlds.vocabulary import PLACES, SIZES

NEW, GONE = len(PLACES), len(PLACES) + 1
"""Questions about edits, after one about every place."""
THING: Final = (1 + len(shapes.NAMES), 1 + len(palette.NAMES), 1 + len(SIZES), 1 + len(PLACES))
"""Answers there are: shape, colour, size and place; 0 is no thing."""
_KINDS: Final = get_args(BackgroundKind)
BACKGROUND: Final = (len(palette.NAMES), 1 + len(palette.NAMES), len(_KINDS))
"""First and second colour, and kind."""
_EDITS: Final = 0.4
"""Of the prompts; the others tell a picture."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`things` (4, B, Q) and `background` (3, B) are the right answers, or UNKNOWN."""

    prompts: tuple[str, ...]
    things: Tensor
    background: Tensor


def ask(count: int, random: Random) -> Asked:
    grids = [random_grid(random) for _ in range(count)]
    return answered([change(random, grid) if random.random() < _EDITS else tell(random, grid) for grid in grids])


def answered(lessons: list[Lesson]) -> Asked:
    """Questions about the prompts of lessons that tell a picture, or edit one."""
    things = torch.full((len(THING), len(lessons), GONE + 1), UNKNOWN)
    background = torch.full((len(BACKGROUND), len(lessons)), UNKNOWN)
    for index, lesson in enumerate(lessons):
        target = lesson.target
        if not lesson.references:
            things[:-1, index, :NEW] = 0
            for thing in target.things:
                things[:-1, index, list(PLACES).index(thing.place)] = _of_things({thing})[:-1]
        else:
            before, after = set(lesson.references[0].things), set(target.things)
            things[:, index, NEW] = _of_things(after - before)
            things[:, index, GONE] = _of_things(before - after)
        if not lesson.references or lesson.references[0].background != target.background:
            background[:, index] = _of_background(target.background)
    return Asked(tuple(lesson.read for lesson in lessons), things, background)


def _of_things(things: set[Thing]) -> Tensor:
    """(4,): of one, or of none."""
    numbers = [
        (shapes.NAMES.index(t.shape), palette.NAMES.index(t.colour), [*SIZES].index(t.size), [*PLACES].index(t.place))
        for t in things
    ]
    return 1 + torch.tensor(numbers[0]) if numbers else torch.zeros(len(THING), dtype=torch.long)


def _of_background(background: Background) -> Tensor:
    second = 0 if background.second is None else 1 + palette.NAMES.index(background.second)
    return torch.tensor([palette.NAMES.index(background.colour), second, _KINDS.index(background.kind)])
