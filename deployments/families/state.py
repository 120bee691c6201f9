"""One picture between two denoising steps."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from torch import Tensor

from deployments.adapters.batched import AppliedAdapter
from deployments.contract.job import GenerationJob


@dataclass(eq=False, slots=True)
class State:
    """All that a picture needs for its next step: plain tensors, so it can wait, move or be dropped at any time.

    `i` counts the steps done; `v` is the velocity of the last one, (1, N, C) float32. `x` and `i` change together,
    after a step has fully succeeded.
    """

    job: GenerationJob
    key: Hashable
    """Names every shape and every shared tensor: states of equal key can take a step together."""
    x: Tensor
    """Latent tokens, (1, N, C) float32."""
    t: Tensor
    """Flow times, (S+1,) float32 on the CPU, falling from 1 to `t[S] = 0`."""
    dt: Tensor
    """Euler steps, (S,) float32 on the CPU, all negative."""
    per: dict[str, Tensor]
    """Conditions of this picture, (1, ...) each; concatenated over a batch."""
    shared: dict[str, Tensor]
    """Position tables, equal for all states of one key."""
    grid: tuple[int, int]
    """Tokens of `x` as (rows, columns)."""
    frame: tuple[int, int]
    """Height and width in pixels of the picture inside the rendered canvas, before it is scaled to the job's size."""
    adapter: AppliedAdapter | None = None
    """What is added to the transformer for this picture."""
    i: int = 0
    v: Tensor | None = None
    joined: tuple[list[State], dict[str, Tensor]] | None = field(default=None, repr=False)
    """On the first state of a batch: the others and the concatenated `per` of all, until membership changes."""

    @property
    def done_steps(self) -> int:
        return self.i

    @property
    def total_steps(self) -> int:
        return len(self.dt)
