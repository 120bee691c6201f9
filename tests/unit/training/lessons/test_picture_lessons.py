from __future__ import annotations

import json
from random import Random

import pytest
import torch

from serve_app.requests.layout import parse_layout
from training.lessons import pictures as lessons
from training.lessons.edits import EDITS
from training.worlds.pictures.drawing import draw, masked
from training.worlds.pictures.scene import Grid, Mask, Scene

GRIDS: tuple[Grid, ...] = ((8, 8), (8, 14), (12, 8))


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("name", lessons.LESSONS)
def test_every_lesson_fits_its_canvas(name: str, held_out: bool) -> None:
    random = Random(0)
    for grid in GRIDS:
        for _ in range(20):
            lesson = lessons.LESSONS[name](random, grid, held_out)
            assert lesson.target.fits(grid, 0.1)
            if name not in ("anything", "change", "erase"):
                assert lesson.target.held_out is held_out


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_changes_something_and_keeps_the_rest(kind: str) -> None:
    random = Random(1)
    for _ in range(30):
        lesson = lessons.change(random, (8, 8), kind=kind)
        (before,), after = lesson.references, lesson.target
        assert before != after
        if kind == "background":
            assert before.things == after.things
        else:
            assert before.background == after.background
            changed = set(before.things) ^ set(after.things)
            assert len(changed) == (1 if kind in ("add", "remove") else 2)


def test_no_learnt_edit_ends_in_what_is_held_out() -> None:
    random = Random(2)
    assert not any(lessons.change(random, (8, 8)).target.held_out for _ in range(200))


def test_combining_takes_the_thing_of_one_and_the_background_of_the_other() -> None:
    random = Random(3)
    for _ in range(30):
        lesson = lessons.combine(random, (8, 8))
        backgrounds = [scene.background for scene in lesson.references]
        index = backgrounds.index(lesson.target.background)
        assert lesson.target.things == lesson.references[1 - index].things


def test_tables_are_what_the_service_takes() -> None:
    random = Random(4)
    for _ in range(50):
        lesson = lessons.lay_out(random, (8, 14))
        rows = parse_layout(lesson.prompt)
        assert [row.target for row in rows] == [thing.box for thing in lesson.target.things]


def test_a_table_has_one_row_per_thing() -> None:
    lesson = lessons.lay_out(Random(5), (8, 8), rows=3)
    assert len(json.loads(lesson.prompt[lesson.prompt.index("[") :])) == 3


def test_what_is_filled_lies_in_the_mask() -> None:
    random = Random(6)
    for _ in range(50):
        lesson = lessons.fill(random, (8, 8))
        assert lesson.mask is not None
        (thing,) = lesson.target.things
        assert thing.box is not None
        top, left, bottom, right = lesson.mask.box
        assert top <= thing.box[0] < thing.box[2] <= bottom
        assert left <= thing.box[1] < thing.box[3] <= right


def test_a_thing_that_is_erased_is_under_the_mask() -> None:
    random = Random(7)
    for _ in range(50):
        lesson = lessons.erase(random, (8, 8), held_out=True)
        (before,) = lesson.references
        (gone,) = set(before.things) - set(lesson.target.things)
        assert lesson.mask is not None
        mask = Mask(lesson.mask.box)  # the ellipse in it may leave out corners, which are empty
        shown = draw([Scene((gone,), before.background), Scene((), before.background)], (8, 8), 16, samples=1)[0]
        changed = (shown[0] - shown[1]).abs().sum(dim=0) > 0
        assert not (changed & ~masked(mask, 128, 128)).any()


def test_what_goes_on_around_a_picture_is_what_can_be_seen_in_it() -> None:
    random = Random(8)
    for _ in range(50):
        lesson = lessons.extend(random, (8, 14))
        assert lesson.mask is not None
        assert lesson.mask.outside
        kept = ~masked(lesson.mask, 14 * 16, 8 * 16)
        before, after = draw([lesson.references[0], lesson.target], (8, 14), 16, samples=1)[0]
        assert torch.equal(before[:, kept], after[:, kept]), "what is kept is the same in both"
