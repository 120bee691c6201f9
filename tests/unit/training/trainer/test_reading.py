from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from training.lessons.batches import batch_of
from training.lessons.pictures import LESSONS, change
from training.trainer.reading import CLASSES, UNKNOWN, Reading, labels
from training.trainer.students import STUDENTS
from training.worlds import palette, shapes
from training.worlds.pictures.scene import SIZES, Background, Scene, Thing

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


@pytest.mark.parametrize("model", ["flux1", "flux2", "flux3"])
def test_what_is_misread_reaches_the_transformer(model: str) -> None:
    torch.manual_seed(0)
    student: Any = STUDENTS[model]()
    heads = Reading(student.networks()["transformer"])
    batch = batch_of([change(Random(n), GRID, False) for n in range(2)], GRID, Random(1))
    assert batch.labels is not None
    t = torch.ones(2)
    student.velocity(torch.randn_like(batch.target), t, t * 0.5, batch)
    loss = heads.loss(batch.labels)
    loss.backward()
    assert loss.item() > 0
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in student.networks()["transformer"].parameters())


def test_heads_learn_to_read() -> None:
    torch.manual_seed(0)

    class Transformer(torch.nn.Module):
        inner_dim = 32

        def __init__(self) -> None:
            super().__init__()
            self.single_transformer_blocks = torch.nn.ModuleList(torch.nn.Identity() for _ in range(4))

        def forward(self, stream: torch.Tensor) -> torch.Tensor:
            for block in self.single_transformer_blocks:
                stream = block(stream)
            return stream

    transformer = Transformer()
    heads = Reading(transformer)
    wanted = labels([BEFORE], GRID, [BEFORE])
    known = torch.nn.functional.one_hot(wanted[0], 32).float()  # the shape is plain to see, and all else follows
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.05)
    losses = []
    for _ in range(100):
        transformer(torch.cat([torch.zeros(1, 5, 32), known], dim=1))
        optimizer.zero_grad()
        loss = heads.loss(wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
