"""The training loop: flow matching of drawn clips and their tones.

As with pictures (`training.flow`), half of all times are 1.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from training.clips.reading import Reading
from training.clips.student import ClipStudent
from training.lessons.clips import Batch, lesson
from training.trainer.attention import plain_attention
from training.trainer.course import Course
from training.trainer.precision import autocast

PURE_NOISE = 0.5
"""How many clips start from noise alone: what a prompt means for the whole is decided there."""
SHIFT = 3.0
"""Of the other times; 1 is uniform, more is nearer to the noise."""
TONE = 0.3
"""How much the tone weighs beside the frames."""


@dataclass(frozen=True, slots=True)
class Plan:
    steps: int
    batches: int = 2
    """Per step."""
    seed: int = 0
    rate: float = 1.0
    """Times the usual rates."""


class ClipCourse(Course):
    """Of a student of clips."""

    def __init__(self, student: ClipStudent, plan: Plan) -> None:
        reading = Reading(student.transformer)
        super().__init__(student.networks() | {"reading": reading}, steps=plan.steps, seed=plan.seed, rate=plan.rate)
        self._student = student
        self._reading = reading
        self._plan = plan
        self.parts: dict[str, float] = {}
        """What the last step's loss is made of."""

    def _surroundings(self) -> AbstractContextManager[None]:
        return plain_attention()

    def _learn(self) -> float:
        self.parts = {}
        for _ in range(self._plan.batches):
            parts = self._loss(lesson(self._random))
            (sum(parts.values(), torch.zeros(())) / self._plan.batches).backward()
            for name, part in parts.items():
                self.parts[name] = self.parts.get(name, 0.0) + part.item() / self._plan.batches
        return self.parts["frames"]

    def _loss(self, batch: Batch) -> dict[str, Tensor]:
        noise, hiss = torch.randn_like(batch.target), torch.randn_like(batch.tone)
        t = times(len(batch.target))
        x = torch.where(batch.given[:, None], batch.target, torch.lerp(batch.target, noise, t[:, None, None]))
        with autocast(torch.device("cpu")), warnings.catch_warnings():
            # Norms with weights of full precision take the longer way, which is what is wanted.
            warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
            video, sound = self._student.velocity(x, torch.lerp(batch.tone, hiss, t[:, None, None]), t, batch)
        missed = (video.float() - (noise - batch.target)).square().mean(dim=2) * batch.weight * ~batch.given
        told, placed = self._reading.loss(batch)
        return {
            "frames": missed.sum() / (~batch.given).sum() / len(missed),
            "tone": TONE * (sound.float() - (hiss - batch.tone)).square().mean(),
            "told": told,
            "placed": placed,
        }


def times(count: int) -> Tensor:
    uniform = torch.rand(count)
    shifted = SHIFT * uniform / (1 + (SHIFT - 1) * uniform)
    return torch.where(torch.rand(count) < PURE_NOISE, 1.0, shifted)
