"""The kinds of questions, what counts as good, and which checkpoints they are put to."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from training.evaluation import edges, grading
from training.evaluation.pictures import drawn
from training.evaluation.question import Ask, Limit, Question, Row
from training.evaluation.sizes import GRIDS, SIZES, canvas_of, size_of
from training.lessons import pictures as lessons
from training.worlds.pictures import captions
from training.worlds.pictures.drawing import ink
from training.worlds.pictures.scene import Background, random_scene

_TELLERS: Final = frozenset({"flux3", "flux2klein", "flux", "kontext"})
_EDITORS: Final = frozenset({"flux3", "flux2klein", "kontext"})
_SHARP_SIZE: Final = (1024, 1024)
_KINDS: Final = ("recolour", "move", "remove", "background", "add")
_TRIES: Final = 300
_MOST_LARGE: Final = 40
ALL_EDITS: Final = "edits in all"
ALL_EDITS_GOAL: Final = 0.8


def _things(count: int) -> Ask:
    def ask(random: Random, index: int) -> Question:
        grid = GRIDS[index % len(GRIDS)]
        scene = random_scene(random, grid, count, held_out=True)
        return Question.of(lessons.Lesson(captions.caption(scene, random), scene), size_of(grid), grid)

    return ask


def _lesson(teacher: lessons.Teacher) -> Ask:
    def ask(random: Random, index: int) -> Question:
        grid = GRIDS[index % len(GRIDS)]
        return Question.of(teacher(random, grid, True), size_of(grid), grid)

    return ask


def _edit(kind: str) -> Ask:
    def ask(random: Random, index: int) -> Question:
        grid = GRIDS[index % len(GRIDS)]
        for _ in range(_TRIES):
            lesson = lessons.change(random, grid, True, kind)
            [before] = lesson.references
            # A background may be asked for that is there already: leaving all as it is must not be right.
            if before.things != lesson.target.things or not _alike(before.background, lesson.target.background):
                return Question.of(lesson, size_of(grid), grid)
        raise RuntimeError(f"no edit of kind {kind} was found that changes anything")

    return ask


def _alike(one: Background, other: Background) -> bool:
    return (one.kind, one.colours) == (other.kind, other.colours)


def _sized(random: Random, index: int) -> Question:
    size = SIZES[index % len(SIZES)]
    grid = canvas_of(size)
    scene = random_scene(random, grid, 1, held_out=True)
    return Question.of(lessons.Lesson(captions.caption(scene, random), scene), size, grid)


def _sharp(random: Random, index: int) -> Question:
    """A thing of some size on a plain background, so that its outline has two colours everywhere."""
    grid = canvas_of(_SHARP_SIZE)
    for _ in range(_TRIES):
        scene = random_scene(random, grid, 1, held_out=True, plain=1.0)
        if scene.things[0].size != "small":
            return Question.of(lessons.Lesson(captions.caption(scene, random), scene), _SHARP_SIZE, grid)
    raise RuntimeError("no scene with a thing large enough was found")


def _outlined(random: Random, index: int) -> Question:
    """By turns with all of the style and none; its line stands out from the thing and from what is behind."""
    grid = GRIDS[index // 2 % len(GRIDS)]
    for _ in range(_TRIES):
        scene = random_scene(random, grid, 1, held_out=True, plain=1.0)
        if ink(scene.background) not in (scene.background.colour, scene.things[0].colour):
            lesson = lessons.Lesson(captions.caption(scene, random), scene)
            return replace(Question.of(lesson, size_of(grid), grid), outlined=1.0 - index % 2)
    raise RuntimeError("no scene for an outline was found")


def _traced(random: Random, index: int) -> Question:
    grid = GRIDS[index % len(GRIDS)]
    for _ in range(_TRIES):
        lesson = lessons.trace(random, grid, True)
        if edges.found(drawn(lesson.target, grid, (grid[1] * 16, grid[0] * 16))).any():
            return replace(Question.of(lesson, size_of(grid), grid), control=lesson.target)
    raise RuntimeError("no scene with edges was found")


_RAG: Final = Limit("rag", 0.04, "mean")

ROWS: Final[tuple[Row, ...]] = (
    Row("one object", _TELLERS, _things(1), grading.scene, 0.95, (_RAG,)),
    Row("two objects", _TELLERS, _things(2), grading.scene, 0.7),
    Row("three objects", _TELLERS, _things(3), grading.scene),
    *(Row(f"edit: {kind}", _EDITORS, _edit(kind), grading.edit, ALL_EDITS_GOAL, group=ALL_EDITS) for kind in _KINDS),
    Row("two references", _EDITORS, _lesson(lessons.combine), grading.scene, 0.7),
    Row(
        "region table",
        frozenset({"flux3"}),
        _lesson(lessons.lay_out),
        grading.boxes,
        limits=(Limit("things", 0.8, "mean", at_least=True),),
    ),
    Row("fill", frozenset({"fill"}), _lesson(lessons.fill), grading.fill, 0.8),
    Row("erase", frozenset({"fill"}), _lesson(lessons.erase), grading.edit),
    Row("extend", frozenset({"fill"}), _lesson(lessons.extend), grading.scene),
    Row(
        "canny",
        frozenset({"canny"}),
        _traced,
        grading.canny,
        limits=(Limit("F1", grading.LEAST_AGREEMENT, "mean", at_least=True),),
    ),
    Row("outlined style (LoRA)", frozenset({"flux3"}), _outlined, grading.style, 0.9),
    Row(
        "sharpness",
        _TELLERS,
        _sharp,
        grading.sharpness,
        limits=(Limit("edge px", grading.WIDEST_EDGE, "median"),),
        at_most=_MOST_LARGE,
    ),
    # Large pictures take long, and how sizes become canvases is the same for all.
    Row("every size", frozenset({"flux3"}), _sized, grading.scene, 0.95, at_least=len(SIZES)),
    Row("every size", _TELLERS - {"flux3"}, _sized, grading.scene, at_least=len(SIZES), at_most=len(SIZES)),
)
