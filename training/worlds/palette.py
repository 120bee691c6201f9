"""The colours of the little worlds, far enough apart that none is taken for another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

COLOURS: Final[Mapping[str, tuple[float, float, float]]] = {
    "red": (0.86, 0.10, 0.12),
    "orange": (0.96, 0.54, 0.06),
    "yellow": (0.96, 0.86, 0.12),
    "green": (0.12, 0.65, 0.20),
    "dark green": (0.02, 0.29, 0.12),
    "cyan": (0.10, 0.80, 0.84),
    "light blue": (0.62, 0.80, 0.98),
    "blue": (0.12, 0.26, 0.90),
    "dark blue": (0.05, 0.08, 0.40),
    "purple": (0.52, 0.13, 0.70),
    "pink": (0.96, 0.52, 0.74),
    "brown": (0.46, 0.27, 0.12),
    "white": (0.96, 0.96, 0.96),
    "gray": (0.50, 0.50, 0.50),
    "black": (0.05, 0.05, 0.05),
}
"""Red, green and blue in [0, 1]."""

NAMES: Final = tuple(COLOURS)

SYNONYMS: Final[Mapping[str, Sequence[str]]] = {
    "gray": ("grey",),
    "purple": ("violet",),
    "cyan": ("turquoise",),
    "dark blue": ("navy", "navy blue"),
    "light blue": ("sky blue",),
}

SHADE: Final = 0.02
"""How much lighter or darker than its name a colour may be, of the whole range."""


def rgb(names: Sequence[str], shades: Sequence[float] | None = None) -> Tensor:
    """(B, 3) in [-1, 1]: the named colours, each lighter by its shade."""
    values = torch.tensor([COLOURS[name] for name in names])
    if shades is not None:
        values = values + torch.tensor(shades)[:, None]
    return values.clamp(0, 1) * 2 - 1
