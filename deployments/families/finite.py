"""Whether what a network made can be seen and heard at all."""

from __future__ import annotations

import torch
from torch import Tensor

from deployments.engine.backend import NotFinite


def finite(result: Tensor) -> Tensor:
    """`result` itself. Raises NotFinite where one of its numbers is none: as a picture it would be black, as sound
    silence. Waits for the device."""
    if not torch.isfinite(result).all():
        raise NotFinite("a network's result is not finite")
    return result
