"""The exam in pictures: the kinds of questions, and what counts as right. `rows.yaml` says who is asked what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image

from deployments.families.canvas import grid_for
from serve_app.media.geometry import DEFAULT_TIER, RATIOS, TIERS, size_for
from training.evaluation import edges
from training.evaluation.exam import Grade, Row
from training.evaluation.people import PEOPLE
from training.lessons.lesson import Lesson
from training.lessons.pictures import LESSONS, change, tell, trace
from training.worlds import vocabulary
from training.worlds.pictures import captions
from training.worlds.pictures.drawing import Pixels, covers, drawn, drawn_mask, ink
from training.worlds.pictures.judge import Verdict, judge, judge_edit, on_canvas
from training.worlds.pictures.scene import CANVAS_SIDE, TOKEN, Background, Grid, Mask, Scene, Thing, random_scene
from training.worlds.pictures.wanted import Wanted

Size: TypeAlias = tuple[int, int]
"""Width and height in pixels."""

LONG: Final[tuple[Size, ...]] = ((1536, 512), (512, 1536), (2048, 512), (512, 2048))
"""More elongated than any ratio that has a name."""
SIZES: Final[tuple[Size, ...]] = (*(size_for(ratio, TIERS[DEFAULT_TIER]) for ratio in RATIOS.values()), (768, 768))
"""Of every ratio that clients can name, and a smaller one."""
_GRIDS: Final[tuple[Grid, ...]] = ((8, 8), (8, 14), (8, 8), (14, 8), (8, 8), (8, 10), (8, 8), (12, 8))
"""What pictures are drawn on where their size isn't the point: every other one is square."""
_CANVASES: Final = tuple((grid, (grid[1] * 64, grid[0] * 64)) for grid in _GRIDS)
"""Without any stretch, and in multiples of 32 pixels that all endpoints take."""
_LEAST_AGREEMENT: Final = 0.8
_WIDEST_EDGE: Final = 12.0
"""Pixels, at 1024 x 1024."""
_TRIES: Final = 300
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
    traced: bool = False
    """Whether the target's edges are given."""
    outlined: float | None = None
    """Strength of the tuned model for outlined style; None: without it."""
    wanted: Wanted | None = None
    """What people's own prompts ask for; `target` is one picture of it."""


def ideal(question: Question) -> Pixels:
    """The right picture."""
    pixels = drawn(question.target, question.grid, question.size, outlined=(question.outlined or 0) >= 0.5)
    if question.mask is None:
        return pixels
    repaint = drawn_mask(question.mask, question.size)[..., None] >= 128
    return np.where(repaint, pixels, drawn(question.references[0], question.grid, question.size))


def _tell_plainly(fits: Callable[[Thing, Background], bool]) -> Callable[[Random, Grid, bool], Lesson]:
    """One thing on a plain background, so that its outline has two colours everywhere."""

    def teach(random: Random, grid: Grid, held_out: bool) -> Lesson:
        while True:
            scene = random_scene(random, grid, 1, held_out, plain=1.0)
            if fits(scene.things[0], scene.background):
                return Lesson(captions.caption(scene, random), scene)

    return teach


def _changes(lesson: Lesson, grid: Grid) -> bool:
    """A background may be asked for that is there already: leaving all as it is must not be right."""
    before, after = (
        (scene.things, scene.background.kind, scene.background.colours)
        for scene in (lesson.references[0], lesson.target)
    )
    return before != after


def _line_stands_out(thing: Thing, behind: Background) -> bool:
    return ink(behind) not in (behind.colour, thing.colour)


def _has_edges(lesson: Lesson, grid: Grid) -> bool:
    return bool(_edges_of(lesson.target, grid).any())


@dataclass(frozen=True, slots=True)
class _Kind:
    teach: Callable[..., Lesson]
    """Of random numbers, the grid, that it is held out, and what the row says."""
    fits: Callable[[Lesson, Grid], bool] = lambda lesson, grid: True
    canvases: Sequence[tuple[Grid, Size]] = _CANVASES
    """By turns."""
    strengths: Sequence[float | None] = (None,)
    """Of outlined style, by turns."""
    traced: bool = False


KINDS: Final[Mapping[str, _Kind]] = {name: _Kind(teach) for name, teach in LESSONS.items()} | {
    "change": _Kind(change, _changes),
    "trace": _Kind(trace, _has_edges, traced=True),
    "sized": _Kind(tell, canvases=[(grid_for(*size, CANVAS_SIDE), size) for size in SIZES]),
    "long": _Kind(tell, canvases=[(grid_for(*size, CANVAS_SIDE), size) for size in LONG]),
    "sharp": _Kind(_tell_plainly(lambda thing, _: thing.size != "small"), canvases=[((8, 8), (1024, 1024))]),
    "outlined": _Kind(
        _tell_plainly(_line_stands_out), canvases=[c for c in _CANVASES for _ in range(2)], strengths=(1.0, 0.0)
    ),
}
"""What can be asked; the names of LESSONS, and more."""


def _asking(name: str, *details: Any) -> Callable[[Random, int], Question]:
    """Raises RuntimeError where no question of the kind is found."""
    kind = KINDS[name]

    def ask(random: Random, index: int) -> Question:
        grid, size = kind.canvases[index % len(kind.canvases)]
        outlined = kind.strengths[index % len(kind.strengths)]
        for _ in range(_TRIES):
            told = kind.teach(random, grid, True, *details)
            if kind.fits(told, grid):
                return Question(told.prompt, size, grid, told.target, told.references, told.mask, kind.traced, outlined)
        raise RuntimeError(f"no question of the kind {name} was found in {_TRIES} tries")

    return ask


def _putting(name: str, heading: str) -> Callable[[Random, int], Question]:
    """People's prompts, one after the other."""
    prompts = PEOPLE[name][heading]

    def ask(random: Random, index: int) -> Question:
        asked = prompts[index % len(prompts)]
        rows, columns = asked.grid
        size = columns * 64, rows * 64
        return Question(asked.prompt, size, asked.grid, asked.wanted.scene(), asked.given, wanted=asked.wanted)

    return ask


def _grade_people(question: Question, picture: Pixels) -> Grade:
    """What the prompt says, and nothing more."""
    assert question.wanted is not None
    verdict = judge(picture, question.grid, question.target)
    faults = question.wanted.faults(verdict.seen, verdict.backdrop, question.grid)
    return Grade(not faults, {}, {"mean rag": verdict.rag}, faults)


def _grade_scene(question: Question, picture: Pixels) -> Grade:
    """Everything that the target shows."""
    verdict = judge(picture, question.grid, question.target)
    return Grade(verdict.right, verdict.parts, {"mean rag": verdict.rag}, verdict.faults())


def _grade_edit(question: Question, picture: Pixels) -> Grade:
    edit = judge_edit(picture, question.grid, question.references[0], question.target)
    parts = {"asked": edit.asked, "kept": edit.kept}
    return Grade(all(parts.values()), parts, {"mean rag": edit.verdict.rag}, edit.faults())


def _grade_boxes(question: Question, picture: Pixels) -> Grade:
    """Which things are what they should be and inside their boxes; what lies elsewhere doesn't matter."""
    verdict = judge(picture, question.grid, question.target)
    right = _in_boxes(verdict)
    figures = {"mean things": sum(right) / len(right), "mean rag": verdict.rag}
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
    parts = {"appears": all(_in_boxes(verdict)), "untouched": untouched}
    faults = verdict.faults() if untouched else (*verdict.faults(), "touched outside of the mask")
    return Grade(all(parts.values()), parts | dict(verdict.parts), {"mean rag": verdict.rag}, faults)


def _in_boxes(verdict: Verdict) -> list[bool]:
    return [thing.place and thing.shape and thing.colour for thing in verdict.things]


def _grade_edges(question: Question, picture: Pixels) -> Grade:
    """The edges are where those of the control picture are. At the size that was rendered."""
    rendered = (on_canvas(picture, question.grid) * 255).round().astype(np.uint8)
    agreement = edges.agreement(edges.found(rendered), _edges_of(question.target, question.grid))
    right = agreement >= _LEAST_AGREEMENT
    return Grade(right, {}, {"mean F1": agreement}, () if right else (f"edges agree by {agreement:.1f}",))


def _edges_of(scene: Scene, grid: Grid) -> NDArray[np.uint8]:
    return edges.found(drawn(scene, grid, (grid[1] * TOKEN, grid[0] * TOKEN)))


def _grade_style(question: Question, picture: Pixels) -> Grade:
    """Around the thing is a line where the style was asked for in full, and none where it was asked for not at all."""
    grid, behind = question.grid, question.target.background
    beyond, within = (covers(question.target.things, grid, TOKEN, grown)[0, 0].numpy() > 0.5 for grown in _LINE[::-1])
    line = on_canvas(picture, grid)[beyond & ~within]
    inked, plain = (
        np.abs(line - np.array(vocabulary.COLOURS[name], np.float32)).sum(axis=1)
        for name in (ink(behind), behind.colour)
    )
    share = float((inked < plain).mean())
    right, figure = (share >= _LINE_THERE, share) if question.outlined else (share <= _LINE_GONE, 1 - share)
    return Grade(right, {}, {"mean line": figure}, () if right else (f"line: {share:.1f}",))


def _grade_sharpness(question: Question, picture: Pixels) -> Grade:
    width = edges.width(picture, question.target, question.grid)
    right, [thing] = width <= _WIDEST_EDGE, question.target.things
    fringe = edges.fringe(picture, question.target, question.grid)
    figures = {"median edge px": width, "mean fringe": fringe}
    return Grade(right, {}, figures, () if right else (f"wide edges: {thing.shape}",))


GRADES: Final[Mapping[str, Callable[[Question, Pixels], Grade]]] = {
    "scene": _grade_scene,
    "people": _grade_people,
    "edit": _grade_edit,
    "boxes": _grade_boxes,
    "fill": _grade_fill,
    "edges": _grade_edges,
    "style": _grade_style,
    "sharpness": _grade_sharpness,
}


def _show(question: Question, picture: Pixels | None) -> tuple[str, Sequence[Image.Image]]:
    shown = [drawn(scene, question.grid, question.size) for scene in question.references]
    if question.mask is not None:
        masked = drawn_mask(question.mask, question.size) > 0
        shown[0][masked] = shown[0][masked] // 2 + 127
    if question.traced:
        shown.append(_edges_of(question.target, question.grid)[..., None].repeat(3, axis=2))
    shown.append(np.full((*question.size[::-1], 3), 250, np.uint8) if picture is None else picture)
    told = f"{question.prompt} ({question.size[0]} x {question.size[1]})"
    return told, [Image.fromarray(pixels) for pixels in shown]


def _row(number: int, ask: Sequence[Any], grade: str, **rest: Any) -> Row[Question, Pixels]:
    seeds = _FIRST_QUESTION + number, _FIRST_SEED + _SEEDS * number
    asking = _putting(*ask) if ask[0] in PEOPLE else _asking(*ask)
    return Row(**rest, ask=asking, grade=GRADES[grade], show=_show, questions_seed=seeds[0], first_seed=seeds[1])


ROWS: Final = tuple(
    _row(number, **row) for number, row in enumerate(yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text()))
)
