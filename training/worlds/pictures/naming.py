"""Which colour of the little world a measured colour is."""

from __future__ import annotations

from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from training.worlds import palette

Floats: TypeAlias = npt.NDArray[np.float32]

PALETTE: Final[Floats] = np.array(list(palette.COLOURS.values()), np.float32)
"""(15, 3) in [0, 1], in the order of `palette.NAMES`."""

_FARTHEST: Final = 22.0
"""CIE76 difference beyond which a colour is none of the palette. Shades stay within 4; the closest two are 31 apart."""


def named(colour: Floats) -> str | None:
    """The palette's name for an RGB colour (3,) in [0, 1]; None for one that is far from all of them."""
    differences = np.linalg.norm(_LAB - lab(colour[None]), axis=1)
    best = int(differences.argmin())
    return palette.NAMES[best] if differences[best] <= _FARTHEST else None


def lab(colours: Floats) -> Floats:
    """(N, 3) RGB in [0, 1] to CIELAB, where distances are as large as they look."""
    clipped = np.clip(colours, 0, 1).astype(np.float32)[None]
    return np.asarray(cv2.cvtColor(clipped, cv2.COLOR_RGB2LAB), np.float32)[0]


_LAB: Final = lab(PALETTE)
