"""The noise that a picture or a clip begins as."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def draw_noise(shape: Sequence[int], generator: torch.Generator, device: torch.device) -> Tensor:
    """Normal noise, float32, on `device`. Drawn on the CPU, so that a seed means the same noise on every device."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32).to(device)
