from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from training.build.checkpoints import component
from training.lessons.batches import batch_of, labels
from training.lessons.pictures import change
from training.trainer.__main__ import STUDENTS
from training.trainer.reading import PictureReading, prompt_course
from training.worlds.pictures.scene import Background, Scene, Thing

GRID = (8, 14)
STAR = Thing("star", "red", size="large", place="left")
RING = Thing("ring", "blue", size="small", place="right")
BEFORE = Scene((STAR, RING), Background("white"))


@pytest.mark.parametrize("model", ["flux1", "flux2", "flux3"])
def test_what_is_misread_reaches_the_transformer(model: str) -> None:
    torch.manual_seed(0)
    student: Any = STUDENTS[model]()
    heads = PictureReading(student.networks()["transformer"])
    batch = batch_of([change(Random(n), GRID, False) for n in range(2)], GRID, Random(1))
    assert batch.labels is not None
    t = torch.ones(2)
    for _ in range(2):  # not every batch has labels to be read
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
    heads = PictureReading(transformer)
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


def test_an_encoder_learns_from_questions() -> None:
    torch.manual_seed(0)
    encoder = component("flux", "text_encoder_2")
    before = {name: weight.detach().clone() for name, weight in encoder.named_parameters()}
    losses = list(prompt_course(encoder, component("flux", "tokenizer_2"), steps=15, seed=1).run())
    assert losses[-1] < losses[0]
    moved = [name for name, weight in encoder.named_parameters() if not torch.equal(weight, before[name])]
    assert len(moved) == len(before), "every part of it takes part"
