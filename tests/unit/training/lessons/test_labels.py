from __future__ import annotations

from random import Random

from training.lessons.batches import CLASSES, UNKNOWN, batch_of, labels
from training.lessons.pictures import LESSONS
from training.worlds import palette, shapes
from training.worlds.pictures.scene import Background, Scene, Thing
from training.worlds.vocabulary import SIZES

GRID = (8, 14)
STAR = Thing("star", "red", size="large", place="left")
RING = Thing("ring", "blue", size="small", place="right")
BEFORE = Scene((STAR, RING), Background("white"))


def test_labels_say_what_is_where() -> None:
    read = labels([BEFORE], GRID)[:, 0].unflatten(1, GRID)
    shape, colour, size, fate = read
    assert read.shape == (len(CLASSES), *GRID)
    middle, left, right = GRID[0] // 2, 2, GRID[1] - 2
    assert shape[middle, left] == 1 + shapes.NAMES.index("star")
    assert colour[middle, left] == 1 + palette.NAMES.index("red")
    assert size[middle, left] == 1 + tuple(SIZES).index("large")
    assert set(shape[:, right - 1 : right + 1].flatten().tolist()) == {0, 1 + shapes.NAMES.index("ring")}
    assert shape[0].sum() == 0, "nothing lies at the top"
    assert (fate == UNKNOWN).all(), "a target has no fate"


def test_of_references_it_is_known_what_stays() -> None:
    after = Scene((RING,), BEFORE.background)
    shape, _, _, fate = labels([BEFORE], GRID, [after])[:, 0]
    assert (fate[shape == 1 + shapes.NAMES.index("star")] == 1).all()
    assert (fate[shape == 1 + shapes.NAMES.index("ring")] == 2).all()
    assert (fate[shape == 0] == 0).all()


def test_a_batch_has_labels_for_all_its_tokens() -> None:
    for kind, pictures in (("tell", 1), ("change", 2), ("combine", 3)):
        batch = batch_of([LESSONS[kind](Random(3), GRID, False) for _ in range(2)], GRID, Random(1))
        assert batch.labels is not None
        assert batch.labels.shape == (
            len(CLASSES),
            2,
            batch.target.shape[1] + sum(r.shape[1] for r in batch.references),
        )
        assert len(batch.references) == pictures - 1
