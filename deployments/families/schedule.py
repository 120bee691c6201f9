"""The times of a picture's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def schedule(scheduler: Any, steps: int, mu: float | None = None) -> tuple[Tensor, Tensor]:
    """Flow times (S+1,) in [0, 1] and Euler steps (S,), as the stock pipelines derive them from a flow-match scheduler.

    `mu` is the logarithm of the shift, for schedulers with a dynamic one. The scheduler given is only read: stepping a
    shared one would tie all pictures to one schedule. Times come from `timesteps / 1000` and not from `sigmas`: the two
    round differently, and the models are called with the former.
    """
    own = type(scheduler).from_config(scheduler.config)
    own.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps).tolist(), mu=mu, device="cpu")
    return torch.cat([own.timesteps / 1000, torch.zeros(1)]), own.sigmas[1:] - own.sigmas[:-1]
