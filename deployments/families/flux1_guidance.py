"""How strongly the prompt acts at each step of a picture: Flux1 is told it as a number beside the time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deployments.engine.backend import JobError

NO_GUIDANCE = 1.0


def guided_steps(steps: int, interval: float | None) -> list[bool]:
    """Whether guidance is applied, for each of `steps` steps.

    With interval n, step i is guided when floor(i / n) advances there: at i = 0, n, 2n, ..., rounded up where n is no
    whole number (1.5 guides 0, 2, 3, 5, 6, ...). 1 and None guide every step. JobError below 1.
    """
    if interval is None:
        return [True] * steps
    if not interval >= 1:
        raise JobError("the guidance interval must be at least 1")
    return [i == 0 or math.floor(i / interval) > math.floor((i - 1) / interval) for i in range(steps)]


def guidance_of_steps(steps: int, guidance: float, interval: float | None) -> Tensor:
    """(S,) float32; steps that `interval` leaves out get NO_GUIDANCE. Raises JobError."""
    return torch.tensor([guidance if guided else NO_GUIDANCE for guided in guided_steps(steps, interval)])
