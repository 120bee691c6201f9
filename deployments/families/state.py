"""The state of one image between two denoising steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from deployments.contract.job import GenerationJob
from deployments.families.packed.batch import Constants, PackedBatch
from deployments.lora.segments import AppliedAdapter


@dataclass(frozen=True, eq=False, slots=True)
class UncondBranch:
    """The unconditional branch of an image with CFG (`cfg`)."""

    state: State
    """State of the image with an empty prompt. Its tokens are current during a step only."""
    scales: Sequence[float]
    """CFG scale per step; 1 skips the unconditional pass."""


@dataclass(eq=False, slots=True)
class State:
    """Everything that an image needs for its next step, as plain tensors: it can wait, move or be dropped at any time.

    `i` counts the steps done; `v` is the velocity of the last one, (1, N, C) float32. `x` and `i` change together,
    after a step has succeeded.
    """

    job: GenerationJob
    x: Tensor
    """Latent tokens, (1, N, C) float32."""
    t: Tensor
    """Flow times, (S+1,) float32 on the CPU, falling from 1 to `t[S] = 0`."""
    dt: Tensor
    """Euler steps, (S,) float32 on the CPU, all negative."""
    per: dict[str, Tensor]
    """Inputs of the transformer, (1, ...) each; `text` and `references` are further tokens."""
    ids: dict[str, Tensor]
    """Position ids of tokens, (L, axes) each."""
    grid: tuple[int, int]
    """Tokens of `x` as (rows, columns)."""
    frame: tuple[int, int]
    """Height and width in pixels of the image inside the canvas, before it is scaled to the job's size."""
    guidance: Tensor | None = None
    """Embedded guidance of each step, (S,) float32 on the CPU; None for models without."""
    adapter: AppliedAdapter | None = None
    uncond: UncondBranch | None = None
    i: int = 0
    v: Tensor | None = None
    constants: Constants | None = field(default=None, repr=False)
    """Inputs of a packed forward that are the same in every step; None before the first."""
    packed_batch: tuple[list[State], PackedBatch] | None = field(default=None, repr=False)
    """The other states and the packed batch, on the first state of a batch, until the members change."""

    @property
    def key(self) -> None:
        """Always None, as any images of one model can take a step together."""

    @property
    def tokens(self) -> int:
        """Tokens of text, image and references in all forwards of the next step."""
        once = self.x.shape[1] + sum(self.per[name].shape[1] for name in ("text", "references") if name in self.per)
        return once + self.uncond.state.tokens if self.uncond and self.scale != 1 else once

    @property
    def scale(self) -> float:
        """CFG scale of the next step."""
        return 1.0 if self.uncond is None or self.i == self.total_steps else self.uncond.scales[self.i]

    @property
    def done_steps(self) -> int:
        return self.i

    @property
    def total_steps(self) -> int:
        return len(self.dt)

    @property
    def steps_alike(self) -> int:
        if self.uncond is None:
            return self.total_steps - self.done_steps
        scales = self.uncond.scales[self.i :]
        return next((k for k, scale in enumerate(scales) if scale != scales[0]), len(scales))


T = TypeVar("T", bound=Tensor | tuple[Tensor, ...])


def tensor_bytes(value: Tensor | tuple[Tensor, ...]) -> int:
    return sum(tensor.nbytes for tensor in ((value,) if isinstance(value, Tensor) else value))


def split_batch(batch: Tensor) -> list[Tensor]:
    """Splits (B, ...) into B tensors (1, ...) that don't share memory."""
    return list(batch.split(1)) if len(batch) == 1 else [each.clone() for each in batch.split(1)]


def draw_noise(shape: Sequence[int], generator: torch.Generator, device: torch.device) -> Tensor:
    """Returns normal noise, float32, on `device`. Drawn on the CPU, so that a seed means the same on every device."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32).to(device)
