"""What T5 should make out in a prompt before any picture asks for it: what is where, and what an edit is about.

The transformer gives texts no positions, so T5 alone can tell which words belong together. From pictures it learns that
too late and too faintly: after thousands of steps, two things still swapped their colours. Asked for it, it knows after
a thousand, which are minutes. The questions are of no use afterwards, and in no checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.build.vocabulary import t5
from training.lessons.batches import random_grid
from training.lessons.pictures import Lesson, change, tell
from training.trainer.course import Course
from training.trainer.progress import follow
from training.trainer.reading import UNKNOWN
from training.worlds import palette, shapes
from training.worlds.pictures.scene import PLACES, SIZES, Background, BackgroundKind, Thing

NEW, GONE = len(PLACES), len(PLACES) + 1
"""Questions about edits, after one about every place. The last one is about the background."""

_THING: Final = (1 + len(shapes.NAMES), 1 + len(palette.NAMES), 1 + len(SIZES), 1 + len(PLACES))
"""Answers there are: shape, colour, size and place; 0 is no thing."""
_KINDS: Final = get_args(BackgroundKind)
_BACKGROUND: Final = (len(palette.NAMES), 1 + len(palette.NAMES), len(_KINDS))
"""First and second colour, and kind."""

_BATCH: Final = 64
_EDITS: Final = 0.4
"""Of the prompts; the others tell a picture."""
_EMPTY: Final = 0.2
"""How much it counts that there is nothing in a place."""
_WIDTH, _HEADS = 128, 4


@dataclass(frozen=True, slots=True)
class Asked:
    """`things` (4, B, Q) and `background` (3, B) are the right answers, or UNKNOWN."""

    prompts: tuple[str, ...]
    things: Tensor
    background: Tensor


class Questions(nn.Module):
    """One layer of attention, so that an answer must be in one word's place, whole."""

    def __init__(self, width: int) -> None:
        """Of a text's tokens."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.questions = nn.Parameter(torch.randn(1, GONE + 2, _WIDTH))
        self.attention = nn.MultiheadAttention(_WIDTH, _HEADS, kdim=width, vdim=width, batch_first=True)
        self.thing = nn.Linear(_WIDTH, sum(_THING))
        self.background = nn.Linear(_WIDTH, sum(_BACKGROUND))

    def loss(self, tokens: Tensor, asked: Asked) -> Tensor:
        """Of `tokens` (B, L, width)."""
        text = self.norm(tokens)
        found = F.gelu(self.attention(self.questions.expand(len(text), -1, -1), text, text, need_weights=False)[0])
        things = self.thing(found[:, :-1]).split(_THING, dim=2)
        background = self.background(found[:, -1]).split(_BACKGROUND, dim=1)
        wrong = [_wrong(*pair, _EMPTY) for pair in zip(things, asked.things, strict=True)]
        wrong += [_wrong(*pair, 1.0) for pair in zip(background, asked.background, strict=True)]
        return torch.stack(wrong).sum()


def read_prompts(encoder: Any, steps: int, seed: int = 0) -> None:
    """Teaches a T5 encoder."""
    follow(PromptCourse(encoder, steps=steps, seed=seed).run(lambda course: None), steps)


class PromptCourse(Course):
    """Of a T5 encoder and questions to it."""

    def __init__(self, encoder: Any, *, steps: int, seed: int) -> None:
        questions = Questions(encoder.config.d_model).to(encoder.device)
        super().__init__({"encoder": encoder, "questions": questions}, steps=steps, seed=seed, rate=1.0)
        self._encoder, self._tokenizer, self._questions = encoder, t5(), questions

    def _learn(self) -> float:
        loss = self.loss(ask(_BATCH, self._random))
        loss.backward()
        return loss.item()

    def loss(self, asked: Asked) -> Tensor:
        ids = self._tokenizer(list(asked.prompts), padding="longest", truncation=True, return_tensors="pt")["input_ids"]
        return self._questions.loss(self._encoder(ids.to(self._encoder.device))[0], asked)


def ask(count: int, random: Random) -> Asked:
    grids = [random_grid(random) for _ in range(count)]
    lessons = [change(random, grid) if random.random() < _EDITS else tell(random, grid) for grid in grids]
    things = torch.full((len(_THING), count, GONE + 1), UNKNOWN)
    background = torch.full((len(_BACKGROUND), count), UNKNOWN)
    for index, lesson in enumerate(lessons):
        _answer(lesson, things[:, index], background[:, index])
    return Asked(tuple(lesson.prompt for lesson in lessons), things, background)


def _answer(lesson: Lesson, things: Tensor, background: Tensor) -> None:
    """Fills in what a lesson's prompt says: (4, Q) and (3,)."""
    target = lesson.target
    if not lesson.references:
        things[:-1, :NEW] = 0
        for thing in target.things:
            things[:-1, list(PLACES).index(thing.place)] = _of_thing(thing)[:-1]
    else:
        [before] = lesson.references
        things[:, NEW] = _of_any(set(target.things) - set(before.things))
        things[:, GONE] = _of_any(set(before.things) - set(target.things))
        if before.background == target.background:
            return
    background[:] = _of_background(target.background)


def _of_any(things: set[Thing]) -> Tensor:
    return _of_thing(things.pop()) if things else torch.zeros(len(_THING), dtype=torch.long)


def _of_thing(thing: Thing) -> Tensor:
    listed: Sequence[tuple[Sequence[str], str]] = (
        (shapes.NAMES, thing.shape),
        (palette.NAMES, thing.colour),
        (tuple(SIZES), thing.size),
        (tuple(PLACES), thing.place),
    )
    return torch.tensor([1 + names.index(name) for names, name in listed])


def _of_background(background: Background) -> Tensor:
    second = 0 if background.second is None else 1 + palette.NAMES.index(background.second)
    return torch.tensor([palette.NAMES.index(background.colour), second, _KINDS.index(background.kind)])


def _wrong(scores: Tensor, wanted: Tensor, first: float) -> Tensor:
    """Of scores (B, C) or (B, Q, C), the mean over what was asked; `first` is how much class 0 counts."""
    scores, wanted = scores.flatten(0, -2), wanted.to(scores.device).flatten()
    weight = torch.where(wanted == 0, first, 1.0) * (wanted != UNKNOWN)
    wrong = F.cross_entropy(scores, wanted, reduction="none", ignore_index=UNKNOWN)
    return (wrong * weight).sum() / weight.sum().clamp_min(1)
