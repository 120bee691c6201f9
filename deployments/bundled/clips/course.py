"""The training loop: flow matching of drawn clips and their tones.

As with pictures (`training.flow`), half of all times are 1, matrices inside the blocks learn with Muon and all else
with AdamW, and the rate falls over the second half.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from deployments.bundled.clips.attention import plain_attention
from deployments.bundled.clips.lessons import Batch, lesson
from deployments.bundled.clips.reading import Reading
from deployments.bundled.clips.student import ClipStudent

WARMUP = 100
DECAY = 0.5
"""The part of all steps over which the rate falls."""
FLOOR = 0.02
ADAMW_RATE, MUON_RATE = 2e-3, 0.02
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


class Course:
    """A student, its optimizers and its randomness: all that a checkpoint of the training must hold."""

    def __init__(self, student: ClipStudent, plan: Plan) -> None:
        self._student = student
        self._plan = plan
        self._random = Random(plan.seed)
        torch.manual_seed(plan.seed)
        self._reading = Reading(student.transformer)
        self._networks = student.networks() | {"reading": self._reading}
        self.step = 0
        self.parts: dict[str, float] = {}
        """What the last step's loss is made of."""
        named = {
            f"{part}.{name}": parameter
            for part, network in self._networks.items()
            for name, parameter in network.named_parameters()
        }
        self._parameters = list(named.values())
        self._optimizers = _optimizers(named)
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self._optimizers]

    def run(self, save: Callable[[Course], None], save_every_s: float = 180.0) -> Generator[float]:
        """Yields the loss of every step; calls `save` now and then, and at the end."""
        saved = time.monotonic()
        with plain_attention():
            while self.step < self._plan.steps:
                loss = self._learn()
                self.step += 1
                if time.monotonic() - saved > save_every_s:
                    save(self)
                    saved = time.monotonic()
                yield loss
        save(self)

    def _learn(self) -> float:
        self._set_rates()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        self.parts = {}
        for _ in range(self._plan.batches):
            parts = self._loss(lesson(self._random))
            (sum(parts.values(), torch.zeros(())) / self._plan.batches).backward()
            for name, part in parts.items():
                self.parts[name] = self.parts.get(name, 0.0) + part.item() / self._plan.batches
        clip_grad_norm_(self._parameters, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        return self.parts["frames"]

    def _loss(self, batch: Batch) -> dict[str, Tensor]:
        noise, hiss = torch.randn_like(batch.target), torch.randn_like(batch.tone)
        t = times(len(batch.target))
        x = torch.where(batch.given[:, None], batch.target, torch.lerp(batch.target, noise, t[:, None, None]))
        with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
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

    def _set_rates(self) -> None:
        left = (self._plan.steps - self.step) / (DECAY * self._plan.steps)
        factor = self._plan.rate * min(1.0, (self.step + 1) / WARMUP, FLOOR + (1 - FLOOR) * left)
        for optimizer, rates in zip(self._optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "networks": {name: network.state_dict() for name, network in self._networks.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "random": self._random.getstate(),
            "torch": torch.get_rng_state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        for name, network in self._networks.items():
            network.load_state_dict(state["networks"][name])
        for optimizer, stored in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        self._random.setstate(state["random"])
        torch.set_rng_state(state["torch"])


def times(count: int) -> Tensor:
    uniform = torch.rand(count)
    shifted = SHIFT * uniform / (1 + (SHIFT - 1) * uniform)
    return torch.where(torch.rand(count) < PURE_NOISE, 1.0, shifted)


def _optimizers(named: dict[str, nn.Parameter]) -> list[torch.optim.Optimizer]:
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in named.items():
        inside = name.startswith("transformer.transformer_blocks.") and name.endswith(".weight")
        (matrices if inside and parameter.ndim == 2 else others).append(parameter)
    return [
        torch.optim.AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.98), weight_decay=0.01),
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0, momentum=0.95, ns_steps=4, adjust_lr_fn="original"),
    ]
