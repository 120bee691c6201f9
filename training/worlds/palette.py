"""The colours of the little worlds, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from training.worlds.vocabulary import COLOURS

NAMES: Final = tuple(COLOURS)

SHADE: Final = 0.02
"""How much lighter or darker than its name a colour may be, of the whole range."""


def rgb(names: Sequence[str], shades: Sequence[float] | None = None) -> Tensor:
    """(B, 3) in [-1, 1]: the named colours, each lighter by its shade."""
    values = torch.tensor([COLOURS[name] for name in names])
    if shades is not None:
        values = values + torch.tensor(shades)[:, None]
    return values.clamp(0, 1) * 2 - 1
