"""What a family of picture models does for the engine.

A family wraps the components of one diffusers pipeline and replaces its loop: it turns jobs into states, says how fast
the latents of a batch move, and turns a finished state into a picture. It keeps nothing about single jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from torch import Tensor

from deployments.engine.backend import JobError
from deployments.families.placement import Placement
from deployments.families.prepared_request import PreparedRequest
from deployments.families.state import State
from deployments.pictures.pixels import Pixels


class Family(Protocol):
    @property
    def transformer(self) -> Any:
        """The network that every step runs: a diffusers model."""
        ...

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        """Raises CheckpointError when a component is missing or broken."""
        ...

    def encode(self, requests: Sequence[PreparedRequest]) -> list[State | JobError]:
        """One state per request, in order; one that can't be done gets its JobError and the others go on."""
        ...

    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        """(B, N, C) float32 tokens at times `t` (B,), heading for `t_next` (B,), to their velocity (B, N, C)."""
        ...

    def finish(self, state: State) -> Pixels:
        """The picture of a state whose steps are all done, in exactly the job's size. Raises NotFinite."""
        ...

    def preview(self, state: State) -> Pixels | None:
        """A small, cheap picture of where the state is heading; None before its first step."""
        ...
