"""The exam in pictures: the kinds of questions, what counts as good, and which checkpoints they are put to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np
from PIL import Image

from deployments.families.canvas import grid_for
from serve_app.media.geometry import DEFAULT_TIER, RATIOS, TIERS, size_for
from training.evaluation import edges
from training.evaluation.exam import Grade, Limit, Row
from training.lessons import pictures as lessons
from training.lessons.pictures import Lesson
from training.worlds import palette
from training.worlds.pictures import captions
from training.worlds.pictures.drawing import Pixels, covers, drawn, drawn_mask, ink
from training.worlds.pictures.judge import Verdict, judge, judge_edit, on_canvas
from training.worlds.pictures.scene import CANVAS_SIDE, Background, Grid, Mask, Scene, random_scene

Size: TypeAlias = tuple[int, int]
"""Width and height in pixels."""

SIZES: Final[tuple[Size, ...]] = (
    *(size_for(ratio, TIERS[DEFAULT_TIER]) for ratio in RATIOS.values()),
    (768, 768),
)
"""Of every ratio that clients can name, and a smaller one."""
GRIDS: Final[tuple[Grid, ...]] = ((8, 8), (8, 14), (8, 8), (14, 8), (8, 8), (8, 10), (8, 8), (12, 8))
"""What pictures are drawn on where their size isn't the point: every other one is square."""
LEAST_AGREEMENT: Final = 0.8
WIDEST_EDGE: Final = 12.0
"""Pixels, at 1024 x 1024."""
ALL_EDITS: Final = "edits in all"

_SHARP_SIZE: Final = (1024, 1024)
_TRIES: Final = 300
_TOKEN: Final = 16
"""Pixels per side of a token at the size that models render at."""
_UNTOUCHED: Final = 2
"""Levels of 255."""
_LINE: Final = (0.06, 0.19)
"""Where the middle of an outline is, in tokens beyond the thing."""
_LINE_THERE, _LINE_GONE = 0.7, 0.2
"""Share of it that is nearer to the line's colour than to the background's."""
_FIRST_QUESTION, _FIRST_SEED, _SEEDS = 20_000, 5_000_000, 10_000
"""Seeds of the first row's questions and pictures, far from those of training; pictures per row have their own."""


@dataclass(frozen=True, slots=True)
class Question:
    """One picture to make. Sizes in pixels; `grid` is the canvas that it will be drawn on."""

    prompt: str
    size: Size
    grid: Grid
    target: Scene
    references: tuple[Scene, ...] = ()
    mask: Mask | None = None
    """Of the first reference."""
    control: Scene | None = None
    """The picture whose edges are to be kept."""
    outlined: float | None = None
    """Strength of the tuned model for outlined style; None: without it."""


def ideal(question: Question) -> Pixels:
    """The right picture."""
    pixels = drawn(question.target, question.grid, question.size, outlined=(question.outlined or 0) >= 0.5)
    if question.mask is None:
        return pixels
    repaint = drawn_mask(question.mask, question.size)[..., None] >= 128
    return np.where(repaint, pixels, drawn(question.references[0], question.grid, question.size))


def _question(lesson: Lesson, grid: Grid, size: Size | None = None) -> Question:
    """Without any stretch, and in multiples of 32 that all endpoints take, unless a size is given."""
    return Question(
        lesson.prompt, size or (grid[1] * 64, grid[0] * 64), grid, lesson.target, lesson.references, lesson.mask
    )


def _told(scene: Scene, random: Random) -> Lesson:
    return Lesson(captions.caption(scene, random), scene)


def _lesson(teach: Callable[[Random, Grid], Lesson]) -> Callable[[Random, int], Question]:
    def ask(random: Random, index: int) -> Question:
        grid = GRIDS[index % len(GRIDS)]
        return _question(teach(random, grid), grid)

    return ask


def _things(count: int) -> Callable[[Random, int], Question]:
    return _lesson(lambda random, grid: _told(random_scene(random, grid, count, held_out=True), random))


def _edit(kind: str) -> Callable[[Random, int], Question]:
    def teach(random: Random, grid: Grid) -> Lesson:
        # A background may be asked for that is there already: leaving all as it is must not be right.
        return _first(
            lambda: lessons.change(random, grid, True, kind),
            lambda lesson: (
                lesson.references[0].things != lesson.target.things
                or _looks(lesson.references[0].background) != _looks(lesson.target.background)
            ),
        )

    return _lesson(teach)


def _looks(background: Background) -> tuple[str, tuple[str, ...]]:
    return background.kind, background.colours


def _sized(random: Random, index: int) -> Question:
    size = SIZES[index % len(SIZES)]
    grid = grid_for(*size, CANVAS_SIDE)
    return _question(_told(random_scene(random, grid, 1, held_out=True), random), grid, size)


def _sharp(random: Random, index: int) -> Question:
    """A thing of some size on a plain background, so that its outline has two colours everywhere."""
    grid = grid_for(*_SHARP_SIZE, CANVAS_SIDE)
    scene = _first(
        lambda: random_scene(random, grid, 1, held_out=True, plain=1.0), lambda scene: scene.things[0].size != "small"
    )
    return _question(_told(scene, random), grid, _SHARP_SIZE)


def _outlined(random: Random, index: int) -> Question:
    """By turns with all of the style and none; its line stands out from the thing and from what is behind."""
    grid = GRIDS[index // 2 % len(GRIDS)]
    scene = _first(
        lambda: random_scene(random, grid, 1, held_out=True, plain=1.0),
        lambda scene: ink(scene.background) not in (scene.background.colour, scene.things[0].colour),
    )
    return replace(_question(_told(scene, random), grid), outlined=1.0 - index % 2)


def _traced(random: Random, index: int) -> Question:
    grid = GRIDS[index % len(GRIDS)]
    lesson = _first(
        lambda: lessons.trace(random, grid, True),
        lambda lesson: edges.found(drawn(lesson.target, grid, _rendered(grid))).any(),
    )
    return replace(_question(lesson, grid), control=lesson.target)


def _first(make: Callable[[], Any], fits: Callable[[Any], Any]) -> Any:
    for _ in range(_TRIES):
        if fits(made := make()):
            return made
    raise RuntimeError(f"no question was found in {_TRIES} tries")


def _rendered(grid: Grid) -> Size:
    return grid[1] * _TOKEN, grid[0] * _TOKEN


def _grade_scene(question: Question, picture: Pixels) -> Grade:
    """Everything that the target shows."""
    verdict = judge(picture, question.grid, question.target)
    return Grade(verdict.right, verdict.parts, {"rag": verdict.rag}, verdict.faults())


def _grade_edit(question: Question, picture: Pixels) -> Grade:
    edit = judge_edit(picture, question.grid, question.references[0], question.target)
    parts = {"asked": edit.asked, "kept": edit.kept}
    return Grade(edit.asked and edit.kept, parts, {"rag": edit.verdict.rag}, edit.faults())


def _grade_boxes(question: Question, picture: Pixels) -> Grade:
    """Which things are what they should be and inside their boxes; what lies elsewhere doesn't matter."""
    verdict = judge(picture, question.grid, question.target)
    right = _in_boxes(verdict)
    figures = {"things": sum(right) / len(right), "rag": verdict.rag}
    return Grade(all(right), verdict.parts, figures, verdict.faults())


def _grade_fill(question: Question, picture: Pixels) -> Grade:
    """The thing asked for is inside the mask, and the rest as it was."""
    assert question.mask is not None
    before = drawn(question.references[0], question.grid, question.size)
    repainted = drawn_mask(question.mask, question.size) >= 128
    touched = np.abs(picture.astype(np.int16) - before)[~repainted]
    untouched = bool(touched.max(initial=0) <= _UNTOUCHED)
    # Only what was painted is judged: what the mask cuts off is no thing any more.
    behind = drawn(Scene((), question.target.background), question.grid, question.size)
    verdict = judge(np.where(repainted[..., None], picture, behind), question.grid, question.target)
    appears = all(_in_boxes(verdict))
    faults = verdict.faults() if untouched else (*verdict.faults(), "touched outside of the mask")
    parts = {"appears": appears, "untouched": untouched, **verdict.parts}
    return Grade(appears and untouched, parts, {"rag": verdict.rag}, faults)


def _in_boxes(verdict: Verdict) -> list[bool]:
    return [thing.place and thing.shape and thing.colour for thing in verdict.things]


def _grade_canny(question: Question, picture: Pixels) -> Grade:
    """The edges are where those of the control picture are. At the size that was rendered."""
    expected = edges.found(drawn(question.target, question.grid, _rendered(question.grid)))
    rendered = (on_canvas(picture, question.grid) * 255).round().astype(np.uint8)
    agreement = edges.agreement(edges.found(rendered), expected)
    right = agreement >= LEAST_AGREEMENT
    return Grade(right, {}, {"F1": agreement}, () if right else (f"edges agree by {agreement:.1f}",))


def _grade_style(question: Question, picture: Pixels) -> Grade:
    """Around the thing is a line where the style was asked for in full, and none where it was asked for not at all."""
    grid, behind = question.grid, question.target.background
    beyond, within = (covers(question.target.things, grid, _TOKEN, grown)[0, 0].numpy() > 0.5 for grown in _LINE[::-1])
    line = on_canvas(picture, grid)[beyond & ~within]
    inked, plain = (
        np.abs(line - np.array(palette.COLOURS[name], np.float32)).sum(axis=1) for name in (ink(behind), behind.colour)
    )
    share = float((inked < plain).mean())
    asked = question.outlined is not None and question.outlined >= 0.5
    right = share >= _LINE_THERE if asked else share <= _LINE_GONE
    return Grade(right, {}, {"line": share if asked else 1 - share}, () if right else (f"line: {share:.1f}",))


def _grade_sharpness(question: Question, picture: Pixels) -> Grade:
    width = edges.width(picture, question.target, question.grid)
    right = width <= WIDEST_EDGE
    return Grade(right, {}, {"edge px": width}, () if right else (f"wide edges: {question.target.things[0].shape}",))


def _show(question: Question, picture: Pixels | None) -> tuple[str, Sequence[Image.Image]]:
    shown = [drawn(scene, question.grid, question.size) for scene in question.references]
    if question.mask is not None:
        masked = drawn_mask(question.mask, question.size) > 0
        shown[0][masked] = shown[0][masked] // 2 + 127
    if question.control is not None:
        found = edges.found(drawn(question.control, question.grid, _rendered(question.grid)))
        shown.append(found[..., None].repeat(3, axis=2))
    shown.append(np.full((*question.size[::-1], 3), 250, np.uint8) if picture is None else picture)
    told = f"{question.prompt} ({question.size[0]} x {question.size[1]})"
    return told, [Image.fromarray(pixels) for pixels in shown]


def _rows() -> tuple[Row[Question, Pixels], ...]:
    flux3, tellers = {"flux3"}, {"flux3", "flux2klein", "flux", "kontext"}
    editors = {"flux3", "flux2klein", "kontext"}
    kinds = ("recolour", "move", "remove", "background", "add")
    sizes = {"at_least": len(SIZES), "shown": len(SIZES)}
    asked: list[tuple[str, set[str], Any, Any, Mapping[str, Any]]] = [
        ("one object", tellers, _things(1), _grade_scene, {"goal": 0.95, "limits": (Limit("rag", 0.04),)}),
        ("two objects", tellers, _things(2), _grade_scene, {"goal": 0.7}),
        ("three objects", tellers, _things(3), _grade_scene, {}),
        *((f"edit: {k}", editors, _edit(k), _grade_edit, {"goal": 0.8, "group": ALL_EDITS}) for k in kinds),
        ("two references", editors, _held_out(lessons.combine), _grade_scene, {"goal": 0.7}),
        (
            "region table",
            flux3,
            _held_out(lessons.lay_out),
            _grade_boxes,
            {"limits": (Limit("things", 0.8, at_least=True),)},
        ),
        ("fill", {"fill"}, _held_out(lessons.fill), _grade_fill, {"goal": 0.8}),
        ("erase", {"fill"}, _held_out(lessons.erase), _grade_edit, {}),
        ("extend", {"fill"}, _held_out(lessons.extend), _grade_scene, {}),
        ("canny", {"canny"}, _traced, _grade_canny, {"limits": (Limit("F1", LEAST_AGREEMENT, at_least=True),)}),
        ("outlined style (LoRA)", flux3, _outlined, _grade_style, {"goal": 0.9}),
        (
            "sharpness",
            tellers,
            _sharp,
            _grade_sharpness,
            {"limits": (Limit("edge px", WIDEST_EDGE, "median"),), "at_most": 40},
        ),
        # Large pictures take long, and how sizes become canvases is the same for all.
        ("every size", flux3, _sized, _grade_scene, {"goal": 0.95, **sizes}),
        ("every size", tellers - flux3, _sized, _grade_scene, {"at_most": len(SIZES), **sizes}),
    ]
    return tuple(
        Row(name, frozenset(to), ask, grade, _show, _FIRST_QUESTION + number, _FIRST_SEED + _SEEDS * number, **more)
        for number, (name, to, ask, grade, more) in enumerate(asked)
    )


def _held_out(teacher: lessons.Teacher) -> Callable[[Random, int], Question]:
    return _lesson(lambda random, grid: teacher(random, grid, True))


ROWS: Final = _rows()
