"""Where the pictures of a forward are on their way."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Moment:
    """One number for each picture, (B,) float32, on the network's device."""

    t: Tensor
    """Flow time, 1 for noise alone."""
    t_next: Tensor
    """The time that this step goes to."""
    guidance: Tensor | None = None
    """How strongly the prompt acts; None for models that aren't told."""
