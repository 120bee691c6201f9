from __future__ import annotations

from random import Random

import pytest

from training.lessons.batches import ALONE, MIXES, batch_of, practice
from training.lessons.lesson import Lesson
from training.worlds.pictures.scene import CANVAS_SIDE, Background, Scene, Thing


@pytest.mark.parametrize("model", MIXES)
def test_a_course_begins_with_text_to_image_alone(model: str) -> None:
    random = Random(0)
    batches = [practice(MIXES[model], 1, random, done) for done in (0.0, ALONE / 2, ALONE) for _ in range(20)]
    assert not any(batch.references or batch.channels is not None for batch in batches)


def test_later_everything_is_practised() -> None:
    random = Random(0)
    batches = [practice(MIXES["flux1"], 1, random, 0.9) for _ in range(120)]
    assert {len(batch.references) for batch in batches} == {0, 1, 2}
    assert {batch.channels.shape[2] for batch in batches if batch.channels is not None} == {48, 48 + 256}
    assert any(batch.image_prompts is not None for batch in batches)


def test_where_something_was_removed_counts_as_much_as_where_something_is() -> None:
    background = Background("white")
    gone, left = (Thing("circle", colour, place=side) for colour, side in (("red", "left"), ("blue", "right")))
    lesson = Lesson("remove the red circle", Scene((left,), background), (Scene((gone, left), background),))
    weight = batch_of([lesson], (8, 8), Random(0)).weight.mean(dim=2).reshape(8, 8)
    assert weight.flip(1).numpy() == pytest.approx(weight.numpy(), rel=0.1)
    assert weight[:, :4].max() > 3 * weight.min()


def test_a_batch_has_one_canvas_and_prompts_for_as_many_things() -> None:
    random = Random(4)
    for _ in range(10):
        batch = practice(MIXES["flux3"], 4, random, 0.0)
        rows, columns = batch.grid
        assert batch.target.shape == (4, rows * columns, 48)
        assert min(rows, columns) == CANVAS_SIDE
        assert len(batch.prompts) == 4
