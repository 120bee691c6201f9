"""The training loop: flow matching of drawn scenes, with what was found to help most on small models.

- Most of the learning happens where the picture is still noise, so half of all times are 1, and the others are drawn
  with a shift.
- A step is the mean of two batches, which are of kinds and canvases of their own.
- Things weigh more than the background (`batches.weights`).
- What the model makes out on its way is learnt, too (`reading`): edits need it.

The stock attention is slow at these lengths: on CPUs, it takes twice as long as plain products in bfloat16, and a
seventh longer in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from training.lessons.batches import Batch
from training.trainer.attention import plain_attention
from training.trainer.course import Course
from training.trainer.precision import autocast
from training.trainer.reading import Reading

PURE_NOISE = 0.5
"""How many of a batch start from noise alone: what a prompt means for the layout is decided there."""


Practice: TypeAlias = Callable[[int, Random, float], Batch]
"""Makes a batch of so many lessons, for a course of which that part, in [0, 1), is done."""


class Student(Protocol):
    shift: float
    """Of the times drawn; 1 is uniform, more is nearer to the noise."""

    def networks(self) -> dict[str, nn.Module]:
        """What is trained, by the names of the checkpoint's components."""
        ...

    def checkpoints(self) -> Mapping[str, Mapping[str, nn.Module]]:
        """By the names of checkpoints, the networks to store there by the folders of their components."""
        ...

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        """(B, N, 48) at times `t` (B,), heading for `t_next` (B,), to its velocity."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    steps: int
    batch: int = 32
    batches: int = 2
    """Per step."""
    seed: int = 0
    rate: float = 1.0
    """Times the usual rates."""


class PictureCourse(Course):
    """Of a student."""

    def __init__(self, student: Student, plan: Plan, practice: Practice, reading: Reading | None = None) -> None:
        networks = student.networks() | ({} if reading is None else {"reading": reading})
        super().__init__(networks, steps=plan.steps, seed=plan.seed, rate=plan.rate)
        self._student = student
        self._reading = reading
        self._plan = plan
        self._practice = practice
        self._device = self._parameters[0].device

    def _surroundings(self) -> AbstractContextManager[None]:
        return plain_attention() if self._device.type == "cpu" else nullcontext()

    def _learn(self) -> float:
        total = 0.0
        for _ in range(self._plan.batches):
            batch = self._practice(self._plan.batch, self._random, self.step / self._plan.steps)
            loss = self._loss(batch) / self._plan.batches
            loss.backward()
            total += loss.item()
        return total

    def _loss(self, batch: Batch) -> Tensor:
        noise = torch.randn_like(batch.target)
        t, t_next = _times(len(batch.target), self._student.shift)
        moved = batch.to(self._device)
        noise, t, t_next = (tensor.to(self._device) for tensor in (noise, t, t_next))
        x = torch.lerp(moved.target, noise, t[:, None, None])
        with autocast(self._device):
            velocity = self._student.velocity(x, t, t_next, moved).float()
        loss = (moved.weight * (velocity - (noise - moved.target)).square()).mean()
        if self._reading is not None and moved.labels is not None:
            loss = loss + self._reading.loss(moved.labels)
        return loss


def _times(count: int, shift: float) -> tuple[Tensor, Tensor]:
    uniform = torch.rand(count)
    t = shift * uniform / (1 + (shift - 1) * uniform)
    t = torch.where(torch.rand(count) < PURE_NOISE, 1.0, t)
    return t, t * torch.rand(count)
