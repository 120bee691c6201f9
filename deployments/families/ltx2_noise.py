"""The noise levels that a clip passes on its way."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import calculate_shift
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES
from torch import Tensor

ENHANCING: Final = tuple(STAGE_2_DISTILLED_SIGMA_VALUES)
"""From where a draft is still seen through the noise."""


def scheduled(scheduler: Any, steps: int, tokens: int) -> Tensor:
    """Sigmas (S+1,) as the stock pipeline derives them from the scheduler, falling from 1 to 0.

    Larger clips stay noisy for longer, up to the most tokens that the scheduler knows. The stock pipeline goes on
    beyond, until there are no steps between 1 and 0 any more: with 20 seconds in high definition there are none.
    """
    if steps == 1:  # some schedulers stretch the way between first and last: here there is none
        return torch.tensor([1.0, 0.0])
    own = type(scheduler).from_config(scheduler.config)
    config = scheduler.config
    most = config.get("max_image_seq_len", 4096)
    mu = calculate_shift(
        min(tokens, most),
        config.get("base_image_seq_len", 1024),
        most,
        config.get("base_shift", 0.95),
        config.get("max_shift", 2.05),
    )
    own.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu, device="cpu")
    return own.sigmas.float()


def distilled(steps: int) -> Tensor:
    """The sigmas that step-distilled models know, (S+1,); of another number, as many in between."""
    return _resampled(DISTILLED_SIGMA_VALUES, steps)


def enhancing(steps: int, noise: float = ENHANCING[0]) -> Tensor:
    """Those that a draft is enhanced with, from `noise` on."""
    return _resampled(ENHANCING, steps) * (noise / ENHANCING[0])


def _resampled(known: list[float] | tuple[float, ...], steps: int) -> Tensor:
    curve = [*known, 0.0]
    places = np.linspace(0, len(known), steps + 1)
    return torch.from_numpy(np.interp(places, np.arange(len(curve)), curve)).float()
