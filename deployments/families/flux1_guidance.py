"""How strongly the prompt acts at each step of a picture.

Flux1 is told its guidance as a number beside the time. Members of a batch are at different steps of different
schedules, so every state carries its own table, and a step looks up each picture's number by its time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deployments.engine.backend import JobError

NO_GUIDANCE = 1.0
BLOCK = 64
"""Tables are padded to a multiple of this, so that step counts hardly ever split a batch."""


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


def guidance_table(t: Tensor, guidance: float, interval: float | None) -> Tensor:
    """Times and guidances of the steps, (1, 2, P) float32 with P the number of steps padded to a multiple of BLOCK.

    `t` is a state's (S+1,) falling flow times; steps that `interval` leaves out get NO_GUIDANCE. Raises JobError.
    """
    steps = len(t) - 1
    table = torch.full((1, 2, math.ceil(steps / BLOCK) * BLOCK), -1.0)
    table[0, 0, :steps] = t[:-1]
    table[0, 1, :steps] = torch.tensor(
        [guidance if guided else NO_GUIDANCE for guided in guided_steps(steps, interval)]
    )
    return table


def guidance_at(t: Tensor, tables: Tensor) -> Tensor:
    """The guidances (B,) at times `t` (B,), from tables (B, 2, P). Stays on the device, without a synchronisation."""
    step = (tables[:, 0] > t[:, None]).sum(dim=1, keepdim=True)  # as many times lie before this one as steps are done
    return tables[:, 1].gather(1, step)[:, 0]
