"""The training loop: flow matching of drawn scenes, with what was found to help most on small models.

- Most of the learning happens where the picture is still noise, so half of all times are 1, and the others are drawn
  with a shift.
- A step is the mean of two batches, which are of kinds and canvases of their own.
- Matrices inside the blocks learn with Muon, everything else with AdamW: half the iterations of AdamW alone.
- Things weigh more than the background (`batches.weights`).
- What the model makes out on its way is learnt, too (`reading`): edits need it.
- The rate is constant and falls to nothing over the second half, which is worth some ten points of accuracy.

bfloat16 halves a step on CPUs that have it. The stock attention is slow there, twice as slow as plain products at
these lengths, and its backward pass still slower in bfloat16.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from deployments.bundled.training.batches import Batch
from deployments.bundled.training.reading import Reading

WARMUP = 100
DECAY = 0.5
"""The part of all steps over which the rate falls."""
FLOOR = 0.02
ADAMW_RATE, MUON_RATE = 2e-3, 0.02
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


class Course:
    """A student, its optimizers and its randomness: all that a checkpoint of the training must hold."""

    def __init__(self, student: Student, plan: Plan, practice: Practice, reading: Reading | None = None) -> None:
        self._student = student
        self._reading = reading
        self._networks = student.networks() | ({} if reading is None else {"reading": reading})
        self._plan = plan
        self._practice = practice
        self._random = Random(plan.seed)
        torch.manual_seed(plan.seed)
        self.step = 0
        named = {
            f"{part}.{name}": parameter
            for part, network in self._networks.items()
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        }
        self._parameters = list(named.values())
        self._optimizers = _optimizers(named)
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self._optimizers]
        self._device = self._parameters[0].device

    def run(self, save: Callable[[Course], None], save_every_s: float = 60.0) -> Iterator[float]:
        """Yields the loss of every step; calls `save` now and then, and at the end."""
        saved = time.monotonic()
        with _fast_attention(self._device):
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
        total = 0.0
        for _ in range(self._plan.batches):
            batch = self._practice(self._plan.batch, self._random, self.step / self._plan.steps)
            loss = self._loss(batch) / self._plan.batches
            loss.backward()
            total += loss.item()
        clip_grad_norm_(self._parameters, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        return total

    def _loss(self, batch: Batch) -> Tensor:
        noise = torch.randn_like(batch.target)
        t, t_next = _times(len(batch.target), self._student.shift)
        moved = batch.to(self._device)
        noise, t, t_next = (tensor.to(self._device) for tensor in (noise, t, t_next))
        x = torch.lerp(moved.target, noise, t[:, None, None])
        with torch.autocast(self._device.type, torch.bfloat16):
            velocity = self._student.velocity(x, t, t_next, moved).float()
        loss = (moved.weight * (velocity - (noise - moved.target)).square()).mean()
        if self._reading is not None and moved.labels is not None:
            loss = loss + self._reading.loss(moved.labels)
        return loss

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


def write_state(state: dict[str, Any], file: Path) -> None:
    """All or nothing: a run that is killed while saving goes on from the state before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    torch.save(state, draft)
    os.replace(draft, file)


def _times(count: int, shift: float) -> tuple[Tensor, Tensor]:
    uniform = torch.rand(count)
    t = shift * uniform / (1 + (shift - 1) * uniform)
    t = torch.where(torch.rand(count) < PURE_NOISE, 1.0, t)
    return t, t * torch.rand(count)


def _optimizers(named: dict[str, nn.Parameter]) -> list[torch.optim.Optimizer]:
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in named.items():
        inside = name.startswith("transformer.") and "blocks" in name
        (matrices if inside and parameter.ndim == 2 else others).append(parameter)
    adamw = torch.optim.AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    if not matrices:
        return [adamw]
    muon = torch.optim.Muon(
        matrices, lr=MUON_RATE, weight_decay=0.0, momentum=0.95, ns_steps=4, adjust_lr_fn="original"
    )
    return [adamw, muon]


@contextlib.contextmanager
def _fast_attention(device: torch.device) -> Iterator[None]:
    """On CPUs, attention as plain products, where nothing is masked."""
    stock = F.scaled_dot_product_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            if attn_mask is not None or any(options.values()):
                whole = stock(query.float(), key.float(), value.float(), attn_mask, **options)
                return whole.to(value.dtype)
            scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            return scores.softmax(dim=-1) @ value

    if device.type == "cpu":
        F.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = stock
