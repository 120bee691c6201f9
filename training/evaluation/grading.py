"""How the answers to each kind of question are graded."""

from __future__ import annotations

import numpy as np
import torch

from training.evaluation import edges
from training.evaluation.pictures import drawn, drawn_mask
from training.evaluation.question import Grade, Question
from training.worlds import palette
from training.worlds.pictures.drawing import ink, silhouettes
from training.worlds.pictures.judge import Pixels, Verdict, judge, on_canvas
from training.worlds.pictures.keeping import judge_edit
from training.worlds.pictures.scene import Scene

LEAST_AGREEMENT = 0.8
WIDEST_EDGE = 12.0
"""Pixels, at 1024 x 1024."""
_UNTOUCHED = 2
"""Levels of 255."""
_LINE = (0.06, 0.19)
"""Where the middle of an outline is, in tokens beyond the thing."""
_LINE_THERE, _LINE_GONE = 0.7, 0.2
"""Share of it that is nearer to the line's colour than to the background's."""
_RENDERED_TOKEN = 16
"""Pixels per side of a token at the size that models render at."""


def scene(question: Question, picture: Pixels) -> Grade:
    """Everything that the target shows."""
    verdict = judge(picture, question.grid, question.target)
    return Grade(verdict.right, _parts(verdict), {"rag": verdict.rag}, verdict.faults())


def edit(question: Question, picture: Pixels) -> Grade:
    verdict = judge_edit(picture, question.grid, question.references[0], question.target)
    parts = {"asked": verdict.asked, "kept": verdict.kept}
    return Grade(verdict.right, parts, {"rag": verdict.verdict.rag}, verdict.faults())


def boxes(question: Question, picture: Pixels) -> Grade:
    """Which things are what they should be and inside their boxes; what lies elsewhere doesn't matter."""
    verdict = judge(picture, question.grid, question.target)
    right = [thing.place and thing.shape and thing.colour for thing in verdict.things]
    figures = {"things": sum(right) / len(right), "rag": verdict.rag}
    return Grade(all(right), _parts(verdict), figures, verdict.faults())


def fill(question: Question, picture: Pixels) -> Grade:
    """The thing asked for is inside the mask, and the rest as it was."""
    assert question.mask is not None
    size = question.width, question.height
    before = drawn(question.references[0], question.grid, size)
    repainted = drawn_mask(question.mask, size) >= 128
    touched = np.abs(picture.astype(np.int16) - before)[~repainted]
    untouched = bool(touched.max(initial=0) <= _UNTOUCHED)
    # Only what was painted is judged: what the mask cuts off is no thing any more.
    behind = drawn(Scene((), question.target.background), question.grid, size)
    verdict = judge(np.where(repainted[..., None], picture, behind), question.grid, question.target)
    appears = all(thing.place and thing.shape and thing.colour for thing in verdict.things)
    parts = {"appears": appears, "untouched": untouched} | _parts(verdict)
    faults = verdict.faults() if untouched else (*verdict.faults(), "touched outside of the mask")
    return Grade(appears and untouched, parts, {"rag": verdict.rag}, faults)


def canny(question: Question, picture: Pixels) -> Grade:
    """The edges are where those of the control picture are. At the size that was rendered."""
    assert question.control is not None
    size = question.grid[1] * _RENDERED_TOKEN, question.grid[0] * _RENDERED_TOKEN
    expected = edges.found(drawn(question.control, question.grid, size))
    rendered = (on_canvas(picture, question.grid) * 255).round().astype(np.uint8)
    agreement = edges.agreement(edges.found(rendered), expected)
    right = agreement >= LEAST_AGREEMENT
    return Grade(right, {}, {"F1": agreement}, () if right else (f"edges agree by {agreement:.1f}",))


def style(question: Question, picture: Pixels) -> Grade:
    """Around the thing is a line where the style was asked for in full, and none where it was asked for not at all."""
    [thing] = question.target.things
    circles = torch.tensor([thing.circle(question.grid)])
    beyond, within = (
        silhouettes([thing.shape], circles, question.grid, _RENDERED_TOKEN, grown=width)[0, 0].numpy() > 0.5
        for width in (_LINE[1], _LINE[0])
    )
    line = on_canvas(picture, question.grid)[beyond & ~within]
    behind = question.target.background
    inked, plain = (
        np.abs(line - np.array(palette.COLOURS[name], np.float32)).sum(axis=1) for name in (ink(behind), behind.colour)
    )
    share = float((inked < plain).mean())
    asked = question.outlined is not None and question.outlined >= 0.5
    right = share >= _LINE_THERE if asked else share <= _LINE_GONE
    return Grade(right, {}, {"line": share if asked else 1 - share}, () if right else (f"line: {share:.1f}",))


def sharpness(question: Question, picture: Pixels) -> Grade:
    width = edges.width(picture, question.target, question.grid)
    right = width <= WIDEST_EDGE
    shapes = "/".join(thing.shape for thing in question.target.things)
    return Grade(right, {}, {"edge px": width}, () if right else (f"wide edges: {shapes}",))


def _parts(verdict: Verdict) -> dict[str, bool]:
    return {
        name: getattr(verdict, name) for name in ("colour", "shape", "place", "size", "background", "count", "clean")
    }
