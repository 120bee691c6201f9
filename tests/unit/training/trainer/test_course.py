from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.lessons.batches import Batch
from training.trainer.course import Course, Plan, write_state
from training.trainer.flow import PictureFlow


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Linear(48, 48, bias=False)
        self.proj = nn.Linear(48, 48)


class Small:
    """Two layers, one of which learns with each optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.transformer = Transformer()

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer}

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        assert bool((t_next <= t).all())
        return self.transformer.proj(x + self.transformer.blocks(x))


def practice(random: Random, done: float) -> Batch:
    target = torch.tensor([[[random.random()] * 48]] * 8)
    return Batch(("",) * 8, (1, 1), target, torch.ones_like(target))


def course(small: Small, steps: int) -> Course[Batch]:
    return Course(PictureFlow(small), practice, Plan(steps))


def weights(small: Small) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in small.transformer.parameters()])


def test_an_interrupted_course_ends_like_one_that_was_not(tmp_path: Path) -> None:
    whole, broken, resumed, state = Small(), Small(), Small(), tmp_path / "small.pt"
    list(course(whole, 12).run())
    first = course(broken, 12)
    for _ in itertools.islice(first.run(), 5):
        pass
    write_state(first.state(), state)
    again = course(resumed, 12)
    again.follow(state)
    assert again.step == 12
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.load(state, weights_only=False)["step"] == 12, "the end is kept, too"


def test_it_learns() -> None:
    losses = list(course(Small(), 300).run())
    assert sum(losses[-50:]) < 0.8 * sum(losses[:50])


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "states" / "small.pt"
    write_state({"step": 1}, file)

    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        write_state({"step": 2}, file)
    assert torch.load(file, weights_only=False) == {"step": 1}


def test_attention_is_the_stock_one_again_after_training() -> None:
    stock = F.scaled_dot_product_attention
    list(course(Small(), 1).run())
    assert F.scaled_dot_product_attention is stock
