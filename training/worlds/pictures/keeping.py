"""Whether an edit kept what it was not asked to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from training.worlds.pictures.drawing import draw
from training.worlds.pictures.judge import Pixels, ThingVerdict, Verdict, judge, on_canvas
from training.worlds.pictures.naming import Floats
from training.worlds.pictures.scene import Grid, Scene, Thing

MOST_CHANGED: Final = 10 / 255
"""Mean absolute difference where nothing was to change."""
_MOVED: Final = 0.06
"""Half the canvas's shorter side = 1: how far a kept thing may be off, and its half side."""
_RESOLUTION: Final = 16
_BLUR: Final = 1.5
"""Standard deviation in pixels."""
_SOFT_EDGE: Final = 4
"""Pixels around what changes that say nothing."""


@dataclass(frozen=True, slots=True)
class EditVerdict:
    verdict: Verdict
    asked: bool
    """Whether what should change is as it should be, and nothing appeared or vanished besides."""
    kept: bool
    """Whether everything else is where and as it was."""

    @property
    def right(self) -> bool:
        return self.asked and self.kept

    def faults(self) -> tuple[str, ...]:
        return (*self.verdict.faults(), *(() if self.kept else ("the rest has changed",)))


def judge_edit(picture: Pixels, grid: Grid, before: Scene, expected: Scene) -> EditVerdict:
    """Grades `picture` as what an edit of `before` should have become."""
    verdict = judge(picture, grid, expected)
    same = [thing for thing in verdict.things if thing.expected in before.things]
    changed = [thing for thing in verdict.things if thing.expected not in before.things]
    same_background = before.background == expected.background
    asked = verdict.count and all(thing.right for thing in changed) and (same_background or verdict.background)
    kept = all(_in_place(thing, grid) for thing in same) and (verdict.background or not same_background)
    return EditVerdict(
        verdict, asked, kept and _difference(on_canvas(picture, grid), grid, before, expected) <= MOST_CHANGED
    )


def _in_place(thing: ThingVerdict, grid: Grid) -> bool:
    if thing.seen is None or not (thing.colour and thing.shape and thing.clean):
        return False
    return max(abs(a - b) for a, b in zip(thing.seen.circle, thing.expected.circle(grid), strict=True)) <= _MOVED


def _difference(canvas: Floats, grid: Grid, before: Scene, expected: Scene) -> float:
    """Mean absolute difference from what is expected, where nothing was to change; 0 when that is nowhere."""
    drawn, _ = draw([expected], grid, _RESOLUTION)
    truth = (drawn[0].permute(1, 2, 0).numpy() + 1) / 2
    if before.background == expected.background:
        one_only = set(before.things) ^ set(expected.things)
        still = ~_around(list(one_only), before, grid, cv2.dilate)
    else:
        still = _around([thing for thing in expected.things if thing in before.things], before, grid, cv2.erode)
    # Out of focus a little: across a pattern of strong colours, soft edges would add up to a change.
    difference = cv2.GaussianBlur(canvas - truth, (0, 0), _BLUR)
    return float(np.abs(difference)[still].mean()) if still.any() else 0.0


def _around(
    things: Sequence[Thing], scene: Scene, grid: Grid, widen: Callable[..., cv2.typing.MatLike]
) -> npt.NDArray[np.bool_]:
    """(H, W): where the things are, with or without their surroundings."""
    covered = np.zeros((grid[0] * _RESOLUTION, grid[1] * _RESOLUTION), np.uint8)
    for thing in things:
        _, cover = draw([Scene((thing,), scene.background)], grid, _RESOLUTION)
        covered |= (cover[0, 0].numpy() > 0.5).astype(np.uint8)
    side = 2 * _SOFT_EDGE + 1
    return widen(covered, np.ones((side, side), np.uint8)) > 0
