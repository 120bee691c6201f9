"""What a clip shows, and scenes at random."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from training.worlds import vocabulary
from training.worlds.vocabulary import CLIPS

Grid: TypeAlias = tuple[int, int]
"""Rows and columns of a canvas, in latent cells of 32 pixels."""
GRIDS: Final[tuple[Grid, ...]] = ((4, 7), (4, 9), (4, 6), (4, 5), (4, 4), (5, 4), (6, 4), (7, 4), (9, 4))
"""What a shorter side of 128 pixels amounts to at all ratios."""

MOTIONS: Final[tuple[str, ...]] = tuple(CLIPS["motions"])
SHAPES: Final[tuple[str, ...]] = tuple(CLIPS["shapes"])
COLOURS: Final[tuple[str, ...]] = tuple(CLIPS["colours"])
"""Of things and of backgrounds."""
SIZES: Final[Mapping[str, float]] = {name: listed["half_side"] for name, listed in CLIPS["sizes"].items()}
"""Half sides, in cells."""
SMALLEST, LARGEST = 0.5, 1.5
"""Half sides at the ends of growing and shrinking, as parts of the size."""

JOURNEY_S: Final = 5.0
"""Seconds from one side to the other, or longer in clips that are longer; shorter clips show its beginning."""

_DIRECTIONS: Final[Mapping[str, tuple[int, int]]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
"""Along x and y."""
_INSET = 1.25
"""From a side of the canvas to the middle of a thing that is there, in cells."""
_ALIKE = 0.45
"""Distance in RGB of [0, 1] below which a thing would hardly stand out."""


@dataclass(frozen=True, slots=True)
class Scene:
    shape: str
    colour: str
    background: str
    motion: str
    size: str = "medium"

    def circle(self, grid: Grid, seconds: float, length: float) -> tuple[float, float, float]:
        """x and y from the canvas's middle, and half side, in cells, `seconds` into a clip of `length` seconds."""
        done = min(1.0, seconds / max(length, JOURNEY_S))
        across, down = _DIRECTIONS.get(self.motion, (0, 0))
        along, radius = 2 * done - 1, SIZES[self.size]
        if self.motion == "grow":
            radius *= SMALLEST + (LARGEST - SMALLEST) * done
        if self.motion == "shrink":
            radius *= LARGEST + (SMALLEST - LARGEST) * done
        return across * along * reach(grid[1]), down * along * reach(grid[0]), radius


def reach(cells: int) -> float:
    """How far from the middle of a side of so many cells things get, in cells."""
    return cells / 2 - _INSET


def random_scene(random: Random) -> Scene:
    background = random.choice(COLOURS)
    behind = vocabulary.COLOURS[background]
    colour = random.choice([name for name in COLOURS if math.dist(vocabulary.COLOURS[name], behind) > _ALIKE])
    size = random.choice(("small", "medium", "medium", "medium", "large"))
    return Scene(random.choice(SHAPES), colour, background, random.choice(MOTIONS), size)
