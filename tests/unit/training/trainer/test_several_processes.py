from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn

from training.trainer.course import Course, Plan
from training.trainer.processes import ALONE, Processes, run_processes


class Line:
    """A weight per place that is told of; the last is told of by nobody."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.network = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(3)])

    def networks(self) -> dict[str, nn.Module]:
        return {"line": self.network}

    def loss(self, batch: tuple[int, float]) -> Tensor:
        place, wanted = batch
        return (self.network[place] - wanted).square().mean()


def practice(random: Random, done: float) -> tuple[int, float]:
    return random.randrange(2), random.random()


def learn(folder: Path, steps: int, processes: Processes) -> None:
    learner = Line()
    course = Course(learner, practice, Plan(steps, batches=2), processes)
    course.follow(folder / "state.pt")
    torch.save([parameter.detach() for parameter in learner.network], folder / f"{processes.rank}.pt")


def weights(folder: Path, rank: int) -> list[Tensor]:
    return torch.load(folder / f"{rank}.pt")


def test_all_processes_have_the_same_weights_and_go_on_from_one_state(tmp_path: Path) -> None:
    for steps in (4, 8):
        run_processes(2, partial(learn, tmp_path, steps))
        first, second = (weights(tmp_path, rank) for rank in (0, 1))
        assert all(map(torch.equal, first, second))
        assert torch.load(tmp_path / "state.pt", weights_only=False)["step"] == steps
    fresh = Line().network
    assert not torch.equal(first[0], fresh[0].detach())
    assert torch.equal(first[2], fresh[2].detach()), "what nobody learns of stays, also from its decay"


def test_one_process_is_this_one(tmp_path: Path) -> None:
    seen: list[Processes] = []
    run_processes(1, seen.append)
    assert seen == [ALONE]


def test_batches_must_divide() -> None:
    with pytest.raises(ValueError, match="3 batches a step can't be divided among 2"):
        Course(Line(), practice, Plan(1, batches=3), Processes(1, 2))
